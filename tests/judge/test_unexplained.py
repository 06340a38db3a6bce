"""What breaks no clause is reported, unless it was asked for or something broken may be why."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from flux_trio.judge import Monitor
from flux_trio.judge.rules import ALL_RULES, unexplained
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.messages.types import NORESPONSE, STREAMING
from flux_trio.trace import CLIENT, KILLED, Kind, Record
from tests.support.judged import CLAUSES, Trace, attached, hand_made, judge, made, made_note

MANAGER, SCHED, KVS = topics.JOB_MANAGER, topics.SCHED, topics.KVS
LOST, FAILED, SUSPENDED = (
    f"unexplained.{what}" for what in ("lost-service", "error-response", "suspension")
)


def found_in(*steps: Trace | Record) -> list[tuple[str, str]]:
    monitor = judge(hand_made(*steps), ALL_RULES)
    assert not any(each.is_unexplained for each in monitor.violations)
    found = monitor.unexplained
    return [(each.clause, each.text) for each in found]


def ends(module: str, what: str, reason: str = "ValueError()") -> Record:
    return made_note(Kind.MODULE.value, "broker", module=module, what=what, reason=reason)


def logs(text: Any, party: str = MANAGER, topic: str = topics.BROKER_LOG) -> Trace:
    return made(party, "broker", Request(topic, text, flags=NORESPONSE))


def fails(client: str, server: str, topic: str, text: str = "no") -> Trace:
    return made(server, client, Response(topic, text, Errno.EINVAL, 5, routes=(client,)))


def line(text: str) -> dict[str, Any]:
    return {"level": 4, "text": text}


ATTACHED = attached(SCHED)
LEAVES = made("broker", MANAGER, Request(topics.JOB_MANAGER_DISCONNECT, routes=(SCHED,)))
ASKED = made("broker", SCHED, Request("sched.shutdown"))


# --- lost services


@pytest.mark.parametrize("what", ["crashed", "returned"])
def test_module_that_ends_by_itself_is_lost(what: str) -> None:
    assert found_in(ends(KVS, what)) == [(LOST, f"kvs has {what}: ValueError()")]


@pytest.mark.parametrize(("what", "reason"), [("removed", ""), ("crashed", KILLED)])
def test_module_that_somebody_ended_is_not(what: str, reason: str) -> None:
    assert found_in(ends(KVS, what, reason)) == []


def test_last_words_of_a_lost_service_are_told() -> None:
    said = [*logs(line("the disk is full"), KVS), Record(3, 0.0, *_fields(ends(KVS, "crashed")))]
    ((_, text),) = found_in(said)
    assert text == "kvs has crashed: ValueError(); it logged: the disk is full"


def test_in_the_trace_of_a_router_a_module_is_lost_that_nobody_asked_to_leave() -> None:
    ((clause, text),) = found_in(*ATTACHED, LEAVES)
    assert (clause, text) == (LOST, "sched has left, and nobody had asked it to")
    assert found_in(*ATTACHED, LEAVES, *ATTACHED) == [(clause, text)], "it came back"
    assert found_in(*ATTACHED, ASKED, LEAVES) == []


def test_scheduler_may_leave_after_its_acquire_has_failed_also_one_before_the_trace() -> None:
    def left_in(*steps: Trace) -> list[str]:
        monitor = Monitor(ALL_RULES, CLAUSES, begins=False)
        for record in hand_made(*steps):
            monitor.observe(record)
        monitor.finish()
        assert monitor.violations == []
        return [each.clause for each in monitor.unexplained]

    error = (Errno.ECANCELED, 5, STREAMING)
    unloaded = Response(topics.RESOURCE_ACQUIRE, None, *error, routes=(SCHED,))
    failed = made(topics.RESOURCE, SCHED, unloaded)
    assert left_in(*ATTACHED, LEAVES) == [LOST]
    assert left_in(*ATTACHED, failed, LEAVES) == []


def test_module_that_is_asked_to_leave_later_has_not_left() -> None:
    """A router does not show of which module a disconnect is."""
    assert found_in(*ATTACHED, LEAVES, ASKED, LEAVES) == []


def test_service_that_crashed_over_what_broke_a_clause_is_explained() -> None:
    """27.alloc.2: the job manager names no job."""
    bad = made(MANAGER, SCHED, Request(topics.SCHED_ALLOC, {"id": "x"}, routes=(MANAGER,)))
    steps = [*ATTACHED, [*bad, Record(3, 0.0, *_fields(ends(SCHED, "crashed")))]]
    assert found_in(*steps) == []


def _fields(record: Record) -> tuple[Any, ...]:
    return (record.kind, record.party, "", 0, None, record.data)


# --- error responses


def test_error_between_services_is_told_with_its_text() -> None:
    ((clause, text),) = found_in(*ATTACHED, fails(SCHED, KVS, topics.KVS_COMMIT, "no room"))
    assert clause == FAILED
    assert text == "kvs.commit of sched: kvs answered with errnum 22: no room"


@pytest.mark.parametrize("topic", [topics.JOB_RAISE, topics.KVS_COMMIT])
def test_error_that_a_client_gets_is_its_own_matter(topic: str) -> None:
    assert found_in(*ATTACHED, fails("client", MANAGER, topic)) == []


def test_nothing_is_kept_of_clients() -> None:
    """There may be any number of them in the life of an instance."""
    monitor = Monitor(unexplained.RULES.all, {})

    def kept() -> set[object]:
        views = (unexplained.TOLD, unexplained.LEAVING, unexplained.LAST_ASKED)
        return {key for view in views for key in monitor.all(view)}

    commit = Request(topics.KVS_COMMIT, {"ops": []}, 5)
    for record in hand_made(*ATTACHED):
        monitor.observe(record)
    before = kept()
    for client in ("client-1", "client-2", "client-3"):
        asked = structs.replace(commit, routes=(client,))
        leaves = Request(topics.JOB_MANAGER_DISCONNECT, flags=NORESPONSE, routes=(client,))
        answered = Response(topics.KVS_COMMIT, {}, 0, 5, routes=(client,))
        steps = (
            made(client, KVS, asked),
            made(KVS, client, answered),
            made(client, MANAGER, leaves),
        )
        for record in hand_made(*steps):
            monitor.observe(record)
    assert kept() == before | {KVS}


def test_module_that_was_asked_to_leave_need_not_serve() -> None:
    unread = Response(topics.KVS_COMMIT, None, Errno.ENOSYS, 5, routes=(MANAGER,))
    refuses = made(KVS, MANAGER, unread)
    assert [clause for clause, _ in found_in(*ATTACHED, refuses)] == [FAILED]
    assert found_in(*ATTACHED, made("broker", KVS, Request("kvs.shutdown")), refuses) == []


@pytest.mark.parametrize(("scheduler", "count"), [(SCHED, 1), (CLIENT, 0)])
def test_program_that_is_no_module_may_be_ended_by_anybody(scheduler: str, count: int) -> None:
    gone = Response(topics.SCHED_FREE, None, Errno.ENOSYS, 5, routes=(MANAGER,))
    found = found_in(*attached(scheduler), made("broker", MANAGER, gone))
    assert [clause for clause, _ in found] == [FAILED] * count


def test_error_in_answer_to_what_broke_a_clause_is_explained() -> None:
    """27.ready.4: the mode is no text."""
    ready = Request(topics.SCHED_READY, {"mode": 1}, 5, routes=(SCHED,))
    steps = (*ATTACHED[:2], made(SCHED, MANAGER, ready), fails(SCHED, MANAGER, topics.SCHED_READY))
    assert found_in(*steps) == []


# --- suspensions


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        (topics.BROKER_LOG, line("scheduling suspended: it is Monday")),
        ("log.append", "<7>1 - - job-manager - - - alloc: stop due to alloc response error: x"),
    ],
)
def test_suspension_is_told_that_only_the_log_shows(topic: str, said: Any) -> None:
    ((clause, text),) = found_in(*ATTACHED, logs(said, topic=topic))
    assert clause == SUSPENDED
    assert "takes sched for lost; it logged: " in text


def test_suspension_after_a_disconnect_is_explained() -> None:
    gone = (ASKED, LEAVES, logs("alloc: stop due to disconnect: Success", topic="log.append"))
    assert found_in(*ATTACHED, *gone) == []


def test_suspension_after_a_wrong_answer_is_explained() -> None:
    """27.alloc.10: there is no type 9."""
    wrong = Response(topics.SCHED_ALLOC, {"id": 7, "type": 9}, routes=(MANAGER,))
    steps = (*ATTACHED, made(SCHED, MANAGER, wrong), logs(line("scheduling suspended: type 9")))
    assert found_in(*steps) == []
