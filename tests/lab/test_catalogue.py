"""Each fault of the catalogue changes the outcome of a world, and its trace says that it struck."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from flux_trio.lab import catalogue as c
from flux_trio.lab.catalogue import FAULTS, Fault, Holds, Lie, SentMessage, When
from flux_trio.lab.plans.files import plan_from_toml, plan_to_toml
from flux_trio.lab.plans.plan import Depth, Plan
from flux_trio.lab.plans.workload import JobPlan
from flux_trio.lab.stories.outcome import Outcome
from flux_trio.lab.stories.running import run_plan
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.trace import Kind, Record

Trace = Sequence[Record]
Sign = Callable[[Trace], bool]

THREE = (JobPlan(), JobPlan(), JobPlan())
WIDE_AND_LATER = (JobPlan(run=30.0, nnodes=4), JobPlan(at=1.0, nnodes=4))

ASKED = When(topics.SCHED_ALLOC, nth=2)
SUBMITTED = When(topics.INGEST_SUBMIT, nth=2)
STARTED = When("job-exec.start", type="response")
GRANT = SentMessage(topics.SCHED_ALLOC, type="response", party="sched")
R_STORED = SentMessage(topics.KVS_COMMIT, party="sched")
LAUNCH = SentMessage("job-exec.start", type="response", party="job-exec")


# --- signs in a trace


def took(seconds: float) -> Sign:
    """The last job ends so many seconds after the start, or later."""
    return lambda trace: trace[-1].t - trace[0].t >= seconds


def noted(kind: Kind, count: int = 1, **data: Any) -> Sign:
    """There are at least `count` records of `kind` with these data."""

    def sign(trace: Trace) -> bool:
        found = [each.data or {} for each in trace if each.kind == kind]
        return sum(data.items() <= each.items() for each in found) >= count

    return sign


def logged(name: str, **context: Any) -> Sign:
    """An event is logged, with this in its context."""

    def sign(trace: Trace) -> bool:
        found = [each.data for each in trace if each.kind == Kind.EVENT and each.data]
        return any(
            each["name"] == name and context.items() <= each["context"].items() for each in found
        )

    return sign


def answered(topic: str, errnum: int | None = None, **payload: Any) -> Callable[[Trace], int]:
    """Return how many responses there are of a topic, with an error or with this in the payload."""

    def sign(trace: Trace) -> int:
        found = [each.message for each in trace if each.kind == Kind.SEND]
        return sum(
            isinstance(each, Response)
            and each.topic == topic
            and (errnum is None or each.errnum == errnum)
            and (not payload or payload.items() <= dict(each.payload or {}).items())  # type: ignore[arg-type]
            for each in found
        )

    return sign


def refused(party: str, errnum: int, text: str) -> Sign:
    """A party whose name begins so gets an error with this in its text."""
    return lambda trace: any(
        each.kind == Kind.RECV
        and each.party.startswith(party)
        and isinstance(each.message, Response)
        and each.message.errnum == errnum
        and text in each.message.error_text
        for each in trace
    )


def ended_jobs(trace: Trace) -> int:
    """Return how many jobs have ended and given back what they had."""
    found = [each.data for each in trace if each.kind == Kind.EVENT and each.data]
    return sum(each["name"] == "clean" for each in found)


def dropped(reason: str) -> Sign:
    return lambda trace: any(
        each.kind == Kind.DROP and reason in (each.data or {})["reason"] for each in trace
    )


def took_meanwhile(which: SentMessage) -> Callable[[Trace], int]:
    """Return how many messages the receiver takes before the nth message, after it was sent."""

    def sign(trace: Trace) -> int:
        type_ = {"request": Request, "response": Response}[which.type]
        sent = [
            each
            for each in trace
            if each.kind == Kind.SEND
            and isinstance(each.message, type_)
            and each.message.topic == which.topic
        ][which.nth - 1]
        taken = [each for each in trace if each.kind == Kind.RECV and each.party == sent.peer]
        place = [each.ref for each in taken].index(sent.n)
        return sum(each.n > sent.n for each in taken[:place])

    return sign


def taken_twice(trace: Trace) -> bool:
    refs = [(each.party, each.ref) for each in trace if each.kind == Kind.RECV]
    return len(set(refs)) < len(refs)


def out_of_order(trace: Trace) -> bool:
    """A receiver takes a message before an earlier one of the same sender."""
    sender = {each.n: each.party for each in trace if each.kind == Kind.SEND}
    last: dict[tuple[str, str], int] = {}
    for each in trace:
        if each.kind == Kind.RECV:
            pair = (sender[each.ref], each.party)
            if last.get(pair, 0) > each.ref:
                return True
            last[pair] = each.ref
    return False


def more(counted: Callable[[Trace], int], than: int) -> Sign:
    return lambda trace: counted(trace) > than


# --- the catalogue


@dataclass(frozen=True)
class Case:
    """`sign` is in the trace with the fault, and not in the one without it.

    A lie is named by the judge: it breaks `clause`.
    """

    fault: Fault
    sign: Sign = lambda _: True
    jobs: tuple[JobPlan, ...] = THREE
    clause: str = ""
    said: tuple[str, str] | None = None  # an entry of the log that is also there: party and text


CASES = (
    Case(c.Crash("sched", ASKED, back=5.0), took(6.0)),
    Case(c.Return("job-exec", When("job-exec.start"), back=3.0), took(4.0)),
    Case(c.Unload("sched", ASKED, back=5.0), took(6.0)),
    Case(c.Reload("sched", ASKED), noted(Kind.MODULE, module="sched", what="removed")),
    Case(c.CrashTogether(("sched", "job-manager"), ASKED, back=4.0), took(5.0)),
    Case(
        c.CrashLoop("sched", ASKED, times=2, every=1.0),
        noted(Kind.MODULE, 3, module="sched", what="crashed"),
    ),
    Case(c.Linger("kvs", ASKED, seconds=9.0), took(9.0)),
    Case(c.Slow("job-manager", ASKED, pause=1.0, seconds=20.0), took(3.0)),
    Case(c.FullInbox("job-ingest", 1, seconds=2.0), more(answered(topics.INGEST_SUBMIT, 11), 0)),
    Case(c.Disconnect("sched", ASKED, back=4.0), took(5.0)),
    Case(
        c.LateSpeech("sched", When(topics.SCHED_FREE), back=0.1, late=2.0),
        dropped("does not hold that service"),
    ),
    Case(c.SecondScheduler(ASKED), more(answered(topics.RESOURCE_ACQUIRE, Errno.EBUSY), 0)),
    Case(
        c.LoseClient(SUBMITTED, back=1.0, late=2.0),
        dropped("late-owner-2 is gone"),
        jobs=(*THREE, JobPlan(at=0.5)),
    ),
    Case(
        c.LostReader(ASKED, seconds=2.0, room=2),
        dropped("65536 messages wait for the peer to read them"),
        said=("reader-1", "dropped: 65536 messages wait for the peer to read them"),
    ),
    Case(c.GuestFlood(ASKED, count=5), more(ended_jobs, 3)),
    Case(
        c.WrongRequest(ASKED, topics.JOB_RAISE, {"id": "no number"}),
        refused("client", Errno.EPROTO, "Expected `int`"),
    ),
    Case(c.NodesDown((0, 1), STARTED, back=4.0), logged("exception"), WIDE_AND_LATER),
    Case(c.NodesUp((0, 1), ASKED), noted(Kind.RESOURCE, what="up"), WIDE_AND_LATER),
    Case(c.Drain((0,), ASKED, back=60.0), took(60.0), WIDE_AND_LATER),
    Case(c.Shrink((0,), STARTED, back=4.0), logged("exception", type="shrink"), WIDE_AND_LATER),
    Case(
        c.Exclude((0,), ASKED),
        more(answered(topics.RESOURCE_ACQUIRE, type="grow"), 1),
        (JobPlan(nnodes=3), JobPlan(nnodes=3)),
    ),
    Case(c.SlowDisk(1, takes=1.0, seconds=30.0), took(5.0)),
    Case(c.DiskFull(ASKED, seconds=3.0), took(3.0)),
    Case(c.DiskFails(ASKED, back=2.0), more(answered(topics.KVS_COMMIT, Errno.EIO), 0)),
    Case(c.TornCommit(ASKED, back=3.0), took(4.0)),
    Case(c.DamagedValue(When("job-exec.start"), "R"), logged("exception", type="exec")),
    Case(c.KillInstance(ASKED, back=3.0), noted(Kind.CONFIG, 2)),
    Case(c.RestartInstance(ASKED, back=3.0), noted(Kind.INSTANCE, what="ending")),
    Case(c.Recover(ASKED, "nothing", back=3.0), noted(Kind.CONFIG, 2)),
    Case(c.ClockJump(STARTED, by=3600.0), took(3600.0)),
    Case(c.ClockDrift(STARTED, by=-0.1, times=3), noted(Kind.CLOCK, 3, by=-0.1)),
    Case(c.Sleep(STARTED, seconds=50.0), took(50.0)),
    Case(c.Delay(GRANT, seconds=5.0), took(6.0)),
    Case(
        c.Overtaken(SentMessage(topics.SCHED_READY), by=4),
        more(took_meanwhile(SentMessage(topics.SCHED_READY)), 3),
    ),
    Case(
        c.HeldUntil(GRANT, When(topics.INGEST_SUBMIT, nth=2)),
        took(5.0),
        (JobPlan(), JobPlan(at=4.0, run=0.1)),
    ),
    Case(c.Drop(GRANT), dropped("lost on its way")),
    Case(c.Duplicate(SentMessage(topics.SCHED_ALLOC)), taken_twice),
    Case(c.JumpQueue(SentMessage(topics.SCHED_ALLOC, nth=3)), out_of_order),
    Case(c.PluginRaises(), logged("urgency")),
    Case(c.PluginHangs(seconds=4.0), took(5.0)),
    Case(c.PluginSaysWrong(said="high"), logged("urgency")),
    Case(c.PluginWrongPriority(priority=77), logged("priority", priority=77)),
    Case(c.PluginRejects(), more(answered(topics.INGEST_SUBMIT, Errno.EINVAL), 0)),
    Case(c.PluginUnavailable(), logged("urgency")),
    Case(c.RemovedKey(GRANT, "id"), clause="27.alloc.9"),
    Case(c.ChangedKey(SentMessage(topics.SCHED_ALLOC), "priority", -1), clause="27.alloc.3"),
    Case(c.NoObject(GRANT), clause="6.response.2"),
    Case(c.WrongType(GRANT), clause="27.alloc.10"),
    Case(c.UnknownId(GRANT), clause="27.background.1"),
    Case(c.Repeated(GRANT), clause="27.success.8"),
    Case(c.StrayAnswer(GRANT), clause="27.background.1"),
    Case(c.AlsoSaid(GRANT, {"note": "again"}), clause="27.success.8"),
    Case(
        c.AlsoAsked(GRANT, topics.RESOURCE_RELEASE, {"group": "default", "targets": "0"}),
        clause="28.release.7",
    ),
    Case(c.NotStreaming(SentMessage(topics.SCHED_HELLO)), clause="27.hello.3"),
    Case(c.Withheld(LAUNCH), clause="32.start.35"),
    Case(c.ErrorAnswer(GRANT), clause="27.impl.10"),
    Case(c.GrantOverlap(R_STORED), clause="invariant.no-double-allocation"),
    Case(c.GrantForeign(R_STORED), clause="20.overview.3"),
    Case(c.BrokenClause("32.start.18", nth=2), clause="32.start.18"),
)


@functools.cache
def usual(jobs: tuple[JobPlan, ...], depth: Depth) -> Outcome:
    """What becomes of these jobs without a fault."""
    return run_plan(Plan(seed=1, jobs=jobs, depth=depth))


def said(outcome: Outcome) -> list[tuple[str, str]]:
    """The entries of the log: party and text."""
    return [(entry.party, entry.text) for entry in outcome.log]


def name(case: Case) -> str:
    return type(case.fault).__name__


def kinds_below(kind: type[c.BaseFault]) -> set[type[c.BaseFault]]:
    """The classes that derive from one, and have none below them."""
    below = kind.__subclasses__()
    return {kind} if not below else set().union(*map(kinds_below, below))


def test_each_kind_of_fault_has_registered_itself() -> None:
    """One without the decorator would be in no plan, no draw and no page."""
    assert len(FAULTS) == len(set(FAULTS))
    assert set(FAULTS) == {
        each for each in kinds_below(c.BaseFault) if each.__module__.startswith("flux_trio.")
    }


def test_each_fault_has_a_case() -> None:
    assert [type(case.fault) for case in CASES] == FAULTS
    assert len(CASES) >= 40


@pytest.mark.in_part(3)
@pytest.mark.parametrize("depth", ["cores", "stack"])
@pytest.mark.parametrize("case", CASES, ids=name)
def test_fault_changes_the_outcome(case: Case, depth: Depth) -> None:
    """The trace has it as a plan does; only a broken promise excuses what is broken."""
    outcome = run_plan(Plan(seed=1, jobs=case.jobs, faults=(case.fault,), depth=depth))
    trace, without = outcome.trace, usual(case.jobs, depth)
    assert outcome.struck[0] == case.fault
    assert plan_from_toml(plan_to_toml(outcome.plan)) == outcome.plan
    struck = [each.data for each in trace if each.kind == Kind.FAULT]
    assert struck[0] == msgspec.to_builtins(case.fault)
    assert outcome.problems == ()
    assert case.fault.holds is not Holds.EVERYTHING or outcome.excused == ()
    assert case.sign(trace)
    if case.said is not None:
        assert case.said in said(outcome)
        assert case.said not in said(without)
    if isinstance(case.fault, Lie):
        assert case.clause in {each.clause for each in outcome.violations}
        assert outcome.excused != ()
    else:
        assert not case.sign(without.trace)
