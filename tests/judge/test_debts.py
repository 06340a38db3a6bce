"""What is due and not done: said when it can no longer come, and listed at the end of a trace."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.formats import format_fluid
from flux_trio.judge.engine.causes import Violation
from flux_trio.judge.rules import ALL_RULES, rfc27_hello, rfc27_success, rfc32_hello
from flux_trio.messages import Request, Response, topics
from flux_trio.messages.types import NORESPONSE, STREAMING
from flux_trio.trace import Kind, Record
from flux_trio.views import verdict_text
from tests.support.judged import (
    ByHand,
    Trace,
    cut,
    drop,
    edit_payload,
    find,
    find_all,
    find_event,
    insert,
    judge,
    made,
    made_note,
    receipt,
)
from tests.support.recorded import judged, recording
from tests.support.scenarios import trace_of

START = "job-exec.start"
EXCEPTION = "job-exception"


def unlogged(trace: Trace, name: str, jobid: int) -> Trace:
    """Without an event of a job, in its eventlog in the KVS too."""
    trace = drop(trace, find_event(trace, name, jobid))
    key = f"{format_fluid(jobid, 'kvs')}.eventlog"
    for commit in find_all(trace, topics.KVS_COMMIT, "request"):
        message: Any = commit.message
        ops = [_without(op, key, name) for op in message.payload["ops"]]
        trace = edit_payload(trace, trace[commit.n - 1], ops=[op for op in ops if op[-1]])
    return trace


def _without(op: list[Any], key: str, name: str) -> list[Any]:
    if op[0] != "append" or op[1] != key:
        return op
    kept = [line for line in op[2].splitlines(keepends=True) if f'"name":"{name}"' not in line]
    return [*op[:2], "".join(kept)]


def causes(violations: list[Violation]) -> list[str]:
    return [each.clause for each in violations if each.cause is None]


@pytest.mark.parametrize(
    ("name", "clause"),
    [
        ("validate", "21.states.1"),
        ("depend", "21.states.2"),
        ("priority", "21.criteria.6"),
        ("alloc", "21.criteria.6"),
        ("finish", "21.criteria.6"),
        ("start", "21.states.5"),
        ("release", "21.states.6"),
        ("free", "27.free.1"),
    ],
)
def test_an_event_that_is_missing_is_named_by_its_own_clause_before_the_job_is_inactive(
    name, clause
):
    trace = trace_of("everyday")
    jobid = find_event(trace, "free").data["id"]
    without = unlogged(trace, name, jobid)
    until = cut(without, find_event(without, "clean", jobid))
    found = [v for v in judge(until, ALL_RULES, cut=True).violations if v.jobid == jobid]
    assert causes(found) == [clause]


def test_a_job_that_is_canceled_before_alloc_owes_no_start():
    trace = trace_of("everyday")
    canceled = next(
        r.data["id"]
        for r in trace
        if r.kind == Kind.EVENT
        and r.data["name"] == "clean"
        and not any(
            e.kind == Kind.EVENT and e.data["id"] == r.data["id"] and e.data["name"] == "alloc"
            for e in trace
        )
    )
    found = judge(trace, ALL_RULES).violations
    assert [each for each in found if each.jobid == canceled] == []


def silent(trace: Trace, topic: str) -> Trace:
    """Up to the first request of this topic, and ten seconds later nobody has answered it."""
    return quiet_after(trace, receipt(trace, find(trace, topic, "request")))


def quiet_after(trace: Trace, last: Record) -> Trace:
    """Up to a record, and nothing happens in the ten seconds after it."""
    until = cut(trace, last)
    later = made_note(Kind.CLOCK.value, "broker")
    quiet = insert(until, until[-1], later)
    return [*quiet[:-1], type(later)(quiet[-1].n, last.t + 10.0, later.kind, "broker", data={})]


@pytest.mark.parametrize(
    ("topic", "clause", "is_due"),
    [
        (topics.SCHED_ALLOC, "27.alloc.12", True),
        (topics.SCHED_FREE, "27.free.6", True),
        (START, "32.start.36", False),
    ],
)
def test_a_service_that_never_answers_is_named(topic, clause, is_due):
    """A job may run for ever; but an idle scheduler with room for the job has to say something."""
    trace = silent(trace_of("everyday"), topic)
    monitor = judge(trace, ALL_RULES, cut=True)
    assert monitor.violations == []
    assert clause in [each.clause for each in monitor.debts()]
    assert [each.may_wait for each in monitor.debts() if each.clause == clause] == [not is_due]
    assert (clause in causes(monitor.finish())) == is_due


def test_the_end_of_the_instance_does_not_forgive_a_debt():
    """The scheduler goes and its requests with it: what was overdue before is still said."""
    trace = silent(trace_of("everyday"), topics.SCHED_FREE)
    ending = made_note(Kind.INSTANCE.value, "broker", what="ending")
    trace = insert(trace, trace[-1], ending)
    request = Request(topics.JOB_MANAGER_DISCONNECT, flags=NORESPONSE)
    trace = insert(trace, trace[-1], *made("sched", topics.JOB_MANAGER, request))
    assert not judge(trace, []).facts.scheduler
    assert "27.free.6" in causes(judge(trace, ALL_RULES).violations)


@pytest.mark.parametrize("awaits", [True, False])
def test_nothing_is_overdue_that_waits_for_an_answer_when_a_party_leaves(awaits: bool) -> None:
    """27.success.6: the job manager checks R of a grant, and has to read it before."""
    trace = trace_of("everyday")
    granted = receipt(trace, find(trace, topics.SCHED_ALLOC, "response", type=0))
    looked_up = next(
        each
        for each in find_all(trace, "kvs.lookup-all", "request")
        if each.party == topics.JOB_MANAGER and each.n > granted.n
    )
    trace = quiet_after(trace, looked_up if awaits else granted)
    leaves = Request(topics.JOB_MANAGER_DISCONNECT, flags=NORESPONSE)
    trace = insert(trace, trace[-1], *made("sched", topics.JOB_MANAGER, leaves))
    named = [each.clause for each in judge(trace, rfc27_success.RULES.all).violations]
    assert ("27.success.6" in named) == (not awaits)


def stuck_in_cleanup() -> dict[str, Any]:
    """A recording of flux-core in which the execution service says nothing after the kill."""
    found = recording("06")
    killed = next(m["t_rel"] for m in found["messages"] if m["topic"] == EXCEPTION)
    after = {
        (m["t_rel"], m["topic"])
        for m in found["messages"]
        if m["t_rel"] > killed
        and (m["topic"] == topics.SCHED_FREE or (m["topic"], m["type"]) == (START, "response"))
    }
    kept = [m for m in found["messages"] if (m["t_rel"], m["topic"]) not in after]
    jobs = found["jobs"]
    for job in jobs:
        ends = ("finish", "release", "free", "clean")
        job["eventlog"] = [each for each in job["eventlog"] if each["name"] not in ends]
    return {**found, "messages": kept, "jobs": jobs}


def test_a_job_of_flux_core_that_is_stuck_in_cleanup_is_broken_at_rest():
    assert causes(list(judged(stuck_in_cleanup(), at_rest=True).violations)) == ["32.start.36"]


def test_what_is_due_is_listed_with_its_age_and_leaves_the_verdict_alone():
    judgement = judged(stuck_in_cleanup())
    assert judgement.is_kept
    assert [each.clause for each in judgement.debts] == ["32.start.36"]
    (debt,) = judgement.debts
    text = verdict_text(judgement, {debt.because[0]: debt.record})
    assert "due at the end of the trace" in text
    assert "the execution service left without its final release, for" in text


def test_nothing_is_due_at_the_end_of_a_recording_that_is_complete():
    assert judged(recording("06")).debts == ()


MANAGER = topics.JOB_MANAGER
EXEC_HELLO = Request(topics.EXEC_HELLO, {"service": "job-exec"}, 1, routes=("job-exec",))
HELLO = Request(topics.SCHED_HELLO, None, 1, STREAMING, routes=("sched",))
LEAVES = Request(topics.JOB_MANAGER_DISCONNECT, flags=NORESPONSE, routes=("sched",))
LOOKUP = Request(topics.KVS_LOOKUP, {"key": "a"}, 7, routes=(MANAGER,))
READ = Response(topics.KVS_LOOKUP, {"value": ""}, matchtag=7, routes=(MANAGER,))


@pytest.mark.parametrize("dead", [[], [MANAGER], [MANAGER, "job-exec"]])
def test_hello_is_owed_no_answer_by_a_job_manager_that_has_crashed_with_its_client(
    dead: list[str],
) -> None:
    """32.impl.8: nobody is left who could answer, or who waits."""
    told = ByHand(rfc32_hello.RULES.all, step_s=0.005)
    told.put(Kind.SEND, EXEC_HELLO, party="job-exec", peer=MANAGER)
    told.put(Kind.RECV, EXEC_HELLO)
    for module in dead:
        told.put(Kind.MODULE, data={"module": module, "what": "crashed"})
    told.monitor.finish()
    assert told.named == ([] if dead else ["32.impl.8"])


@pytest.mark.parametrize("reads", [True, False])
def test_hello_is_overdue_once_the_job_manager_has_what_it_reads(reads: bool) -> None:
    """27.hello.15: before it has read which jobs there are, it does not know what to tell."""
    told = ByHand(rfc27_hello.RULES.all, ["27.hello.15"])
    told.put(Kind.SEND, LOOKUP)
    told.put(Kind.SEND, HELLO, party="sched", peer=MANAGER)
    told.put(Kind.RECV, HELLO, peer="sched")
    if not reads:
        told.put(Kind.RECV, READ)
    for _ in range(3):
        told.put(Kind.SEND, Request("kvs.ping", {}, 9, routes=("other",)), party="other")
    told.put(Kind.SEND, LEAVES, party="sched", peer=MANAGER)
    told.put(Kind.RECV, LEAVES, peer="sched")
    told.monitor.finish()
    assert told.named == ([] if reads else ["27.hello.15"])


@pytest.mark.parametrize("kind", [Kind.DROP, Kind.RECV])
def test_what_a_job_manager_asked_is_open_if_the_answer_comes_with_its_end(kind: Kind) -> None:
    """27.hello.15: a reload drops what is in its inbox, and then takes leave of the kvs."""
    told = ByHand(rfc27_hello.RULES.all, ["27.hello.15"])
    told.put(Kind.SEND, LOOKUP)
    told.put(Kind.SEND, HELLO, party="sched", peer=MANAGER)
    told.put(Kind.RECV, HELLO, peer="sched")
    told.put(kind, READ)
    for _ in range(3):
        told.put(Kind.SEND, Request("kvs.ping", {}, 9, routes=("other",)), party="other")
    leave = Request(topics.disconnect_of("kvs"), flags=NORESPONSE, routes=(MANAGER,))
    told.put(Kind.SEND, leave, peer="kvs")
    told.put(Kind.MODULE, data={"module": MANAGER, "what": "removed"})
    told.monitor.finish()
    assert told.named == ([] if kind == Kind.DROP else ["27.hello.15"])
