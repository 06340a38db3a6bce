"""Rules for the traces of a router: violations planted in what real flux-core said."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from flux_trio.judge.rules import ROUTED_RULES
from flux_trio.trace import read_trace
from tests.support.recorded import RecordingJson, broken, first, judged_source, messages, recording
from tests.support.sched_script import jobspec

LIFECYCLE, CANCELED, LIMITED, CANCEL_RUNNING, REFUSED = "01", "05", "16", "06", "41"

Change = Callable[[RecordingJson], Any]
PLANTED: list[tuple[str, str, str, Change]] = []


def planted(number: str, *clauses: str) -> Callable[[Change], Change]:
    """Register a function that changes a recording so that it breaks these clauses."""

    def register(change: Change) -> Change:
        PLANTED.extend((f"{each}: {change.__name__}", each, number, change) for each in clauses)
        return change

    return register


def drop(told: RecordingJson, topic: str, type_: str, **keys: Any) -> None:
    told["messages"].remove(messages(told, topic, type_, **keys)[0])


def submitted(told: RecordingJson) -> Any:
    return first(told, "job-manager.submit", "request")["jobs"][0]


@planted(LIFECYCLE, "6.request.1")
def an_answer_without_a_request(told: RecordingJson) -> None:
    drop(told, "job-manager.idle", "request")


@planted(LIFECYCLE, "6.response.2")
def a_request_without_an_answer(told: RecordingJson) -> None:
    drop(told, "job-manager.idle", "response")


@planted(CANCELED, "27.alloccancel.1", "27.cancel.5")
def a_cancel_of_what_nobody_canceled(told: RecordingJson) -> None:
    drop(told, "sched.cancel", "request")


@planted(REFUSED, "27.expiration.10")
def an_expiration_is_applied_that_was_refused(told: RecordingJson) -> None:
    asked = messages(told, "sched.expiration", "request")[0]
    log = told["jobs"][0]["eventlog"]
    place = next(at for at, each in enumerate(log) if each["name"] == "finish")
    context = {"expiration": asked["payload"]["expiration"]}
    update = {"name": "resource-update", "context": context, "t_rel": asked["t_rel"] + 0.01}
    log.insert(place, update)


@planted(LIFECYCLE, "27.ready.12")
def more_jobs_are_counted_than_there_are(told: RecordingJson) -> None:
    first(told, "job-manager.sched-ready", "response")["count"] = 1


@planted(LIFECYCLE, "21.events.4")
def submitted_with_another_urgency(told: RecordingJson) -> None:
    submitted(told)["urgency"] = 17


@planted(LIFECYCLE, "21.events.5")
def submitted_by_another_user(told: RecordingJson) -> None:
    submitted(told)["userid"] = 7


@planted(LIFECYCLE, "21.events.6")
def submitted_without_flags(told: RecordingJson) -> None:
    del submitted(told)["flags"]


@planted(LIFECYCLE, "33.validation.4")
def refused_and_active_all_the_same(told: RecordingJson) -> None:
    (answer,) = messages(told, "job-manager.submit", "response")
    del answer["payload"]
    answer["errnum"] = 22


@planted(LIFECYCLE, "33.defaults.7", "32.start.7")
def another_program_was_submitted(told: RecordingJson) -> None:
    submitted(told)["jobspec"]["tasks"][0]["command"] = ["false"]


@planted(CANCEL_RUNNING, "21.criteria.7")
def an_exception_that_is_not_logged(told: RecordingJson) -> None:
    for job in told["jobs"]:
        job["eventlog"] = [each for each in job["eventlog"] if each["name"] != "exception"]


@pytest.mark.parametrize(
    ("clause", "number", "change"), [pytest.param(*rest, id=name) for name, *rest in PLANTED]
)
def test_planted_violation_is_named(clause: str, number: str, change: Change) -> None:
    told = recording(number)
    assert clause not in broken(told, at_rest=True)
    change(told)
    assert clause in broken(told, at_rest=True)


def test_every_rule_of_a_router_has_a_violation() -> None:
    assert {rule.clause for rule in ROUTED_RULES} == {clause for _, clause, *_ in PLANTED}


def test_calls_of_a_trace_that_begins_in_the_middle_are_not_counted() -> None:
    """6.request.1 6.response.2: what was asked before is not shown."""
    told = recording(LIFECYCLE)
    last = told["messages"].index(messages(told, "job-manager.idle", "response")[0])
    told["messages"] = told["messages"][last:]
    assert broken(told, at_rest=True) & {"6.request.1", "6.response.2"} == set()


def updated(seconds: float) -> set[str]:
    """The clauses that a sched.alloc with the old duration breaks, so long after its update."""
    t, spec = 1787054400.0, jobspec(duration=5.0)
    job = {"id": 1, "userid": 0, "urgency": 16, "t_submit": t, "flags": 0, "jobspec": spec}
    update = {"name": "jobspec-update", "context": {"attributes.system.duration": 30.0}}
    happens = {"id": 1, "events": [update | {"timestamp": t}]}
    asked = {"id": 1, "priority": 16, "userid": 0, "t_submit": t, "jobspec": spec}
    printed = [
        ("00:00", "tx > kvs.commit [0]", None),
        ("00:00", "rx > job-manager.submit [9]", {"jobs": [job]}),
        ("00:00", "tx < job-manager.events-journal [9] success", happens),
        (f"00:{seconds:02.0f}", "tx > sched.alloc [9]", asked),
    ]
    lines: list[str] = []
    for time, what, payload in printed:
        lines.append(f"2026-08-18T12:{time}.000 job-manager {what}\n")
        lines += [] if payload is None else [json.dumps(payload) + "\n"]
    return {each.clause for each in judged_source(read_trace(lines)).violations}


def test_request_may_have_been_sent_before_an_update_that_is_stamped_before_it() -> None:
    """33.defaults.7: a busy router stamps messages late."""
    assert "33.defaults.7" not in updated(0)
    assert "33.defaults.7" in updated(5)


# --- a party that has left, and speaks again

RELOADED, EXEC_RELOADED = "14", "24"


def disconnects(told: RecordingJson) -> list[str]:
    """Who has left, by the disconnects of the trace."""
    trace = read_trace([msgspec.json.encode(told).decode()]).records
    topics = ("job-manager.disconnect", "resource.disconnect")
    sent = [each.message for each in trace if each.kind == "send"]
    return [each.sender for each in sent if getattr(each, "topic", "") in topics]


def stray(number: str, **fields: Any) -> RecordingJson:
    """A recording in which a module speaks right after the job manager was told that it is gone."""
    told = recording(number)
    left = first_place(told, "job-manager.disconnect")
    at = {"t_rel": told["messages"][left]["t_rel"]}
    told["messages"].insert(left + 1, {**at, "to": "job-manager", **fields})
    return told


def first_place(told: RecordingJson, topic: str) -> int:
    return next(n for n, each in enumerate(told["messages"]) if each["topic"] == topic)


def a_waiting_job(told: RecordingJson) -> int:
    """A job whose sched.alloc is open when the scheduler leaves."""
    left = first_place(told, "job-manager.disconnect")
    before = told["messages"][:left]
    asked = [each for each in before if (each["topic"], each["type"]) == ("sched.alloc", "request")]
    return int(asked[-1]["payload"]["id"])


SCHEDULER: Any = {"from": "sched-simple", "type": "response"}
EXEC: Any = {"from": "job-exec", "type": "response", "topic": "job-exec.start"}


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        ("sched.alloc", {"type": 1, "annotations": {"sched": {"reason_pending": "x"}}}),
        ("sched.alloc", {"type": 3}),
        ("sched.free", {}),
    ],
)
def test_a_scheduler_that_has_left_and_answers_is_named(topic: str, payload: Any) -> None:
    """27.background.1; that it left is known, though it speaks again."""
    jobid = a_waiting_job(recording(RELOADED))
    told = stray(RELOADED, **SCHEDULER, topic=topic, payload={"id": jobid, **payload})
    assert disconnects(told) == disconnects(recording(RELOADED))
    assert broken(told, at_rest=True) == {"27.background.1"}


def test_a_scheduler_that_has_left_and_asks_is_named() -> None:
    """27.hello.1: before anything else it says hello again."""
    request = {"from": "sched-simple", "type": "request", "topic": "job-manager.sched-ready"}
    told = stray(RELOADED, **request, payload={"mode": "unlimited"})
    assert disconnects(told) == disconnects(recording(RELOADED))
    assert "27.hello.1" in broken(told, at_rest=True)


@pytest.mark.parametrize(
    ("type_", "data"),
    [("start", {}), ("finish", {"status": 0}), ("release", {"ranks": "all", "final": True})],
)
def test_an_execution_service_that_has_left_and_answers_is_named(type_: str, data: Any) -> None:
    """32.start.3: its streams have ended with it."""
    jobid = recording(EXEC_RELOADED)["jobs"][0]["id"]
    told = stray(EXEC_RELOADED, **EXEC, payload={"id": jobid, "type": type_, "data": data})
    assert disconnects(told) == disconnects(recording(EXEC_RELOADED))
    assert broken(told, at_rest=True) == {"32.start.3"}


def test_a_module_that_crashed_and_comes_back_is_known_though_it_speaks_between() -> None:
    """It was not told to shut down; but it is loaded again later."""
    told = stray("18", **SCHEDULER, topic="sched.free", payload={"id": 1})
    assert disconnects(told) == disconnects(recording("18"))
    assert "27.background.1" in broken(told, at_rest=True)


def test_a_scheduler_that_was_no_module_may_have_left_before_another_serves() -> None:
    """Programs that are no modules have one name; which one a disconnect is of is not told."""
    told = recording("14")
    for each in told["messages"]:
        if each["t_rel"] < 1.5:
            for end in ("from", "to"):
                each[end] = "client" if each[end] == "sched-simple" else each[end]
    assert "3.routing.1" not in broken(told)
