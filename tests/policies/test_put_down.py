"""A schedule that is put down and taken up at any moment decides what it would have decided."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flux_trio.cores.state import Part, put_down, take_up
from flux_trio.formats import Constraint, Group, Idset, ResourceSet, parse_constraint
from flux_trio.policies import Job, Schedule, Shape, conservative, easy
from tests.support.fingerprint import differences, normalised
from tests.support.scheduling import machine, nodes, slots

RANKS = 3
CORES = 3
QUEUES = {"batch": "easy", "debug": "fifo", "plan": "conservative"}
FAST = parse_constraint({"properties": ["fast"]})
SLOW = parse_constraint({"not": [{"properties": ["fast"]}]})
FIRST = parse_constraint({"ranks": ["0"]})


class Kept(Part):
    """A part with a schedule as its state."""

    schedule: Schedule

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule


def reborn(kept: Kept) -> Kept:
    """Another part, which has nothing but the dump of `kept`."""
    data = msgspec.json.decode(msgspec.json.encode(put_down(kept)))
    made = Kept(Schedule())
    take_up(made, data)
    assert put_down(made) == data
    return made


def grown(rank: int) -> ResourceSet:
    """A node; every second one is fast, and one has gpus."""
    fast = {"fast": Idset.of([rank])} if rank % 2 else {}
    return machine(1, CORES, int(rank == 1), first=rank, properties=fast)


class JobRequest(NamedTuple):
    """What a job asks for."""

    kind: str
    count: int
    constraint: Constraint | None
    duration: float
    priority: int
    queue: str


ASKED = st.builds(
    JobRequest,
    kind=st.sampled_from(["slots", "slots", "wide", "gpu", "nodes", "whole"]),
    count=st.sampled_from([1, 1, 2, 3, 5]),
    constraint=st.sampled_from([None, None, None, FAST, SLOW, FIRST]),
    duration=st.sampled_from([5.0, 1.0, 4.0, 20.0, math.inf, math.inf]),
    priority=st.sampled_from([16, 16, 16, 20]),
    queue=st.sampled_from(["", *QUEUES]),
)


def shape_of(asked: JobRequest) -> Shape:
    """A new object each time, since a shape may be parsed again."""
    count, constraint = asked.count, asked.constraint
    match asked.kind:
        case "slots":
            return slots(count, constraint=constraint)
        case "wide":
            return slots(count, 2, constraint=constraint)
        case "gpu":
            return slots(1, 1, 1, constraint=constraint)
        case "nodes":
            return nodes(min(count, RANKS), constraint=constraint)
        case _:
            return nodes(min(count, RANKS), whole=True, constraint=constraint)


def told(schedule: Schedule, now: float) -> Any:
    """What a schedule decides, as values that compare."""
    found = schedule.decide(now)
    started = [(job.id, grant.allocation.groups, grant.end) for job, grant in found.started]
    return started, [(job.id, start) for job, start in found.waiting.items()]


def _is_wild(story: Any) -> bool:
    return not story.is_calm


class PutDown(RuleBasedStateMachine):
    """All that a schedule hears; its twin hears the same, and is put down at times."""

    policy = "fifo"
    has_queues = False
    is_often = False

    @initialize(
        is_calm=st.sampled_from([True, True, False]), is_often=st.sampled_from([True, True, False])
    )
    def make(self, is_calm: bool, is_often: bool) -> None:
        self.is_calm = is_calm  # no change lets a policy plan anew
        self.is_often = is_often  # the twin is put down after each step
        queues = QUEUES if self.has_queues else None
        self.kept, self.twin = (Kept(Schedule(self.policy, queues)) for _ in range(2))
        self.now = 1000.0
        self.last_id = 0
        self.waiting: set[int] = set()
        self.running: set[int] = set()
        for rank in range(RANKS):
            self.both("grow", grown(rank), -1)

    def both(self, method: str, *args: Any) -> None:
        """Call the same method of both; they answer the same."""
        one = getattr(self.kept.schedule, method)(*args)
        other = getattr(self.twin.schedule, method)(*args)
        assert isinstance(one, Job) or one == other

    def decide(self) -> None:
        decided = told(self.kept.schedule, self.now)
        assert told(self.twin.schedule, self.now) == decided
        ids = {jobid for jobid, *_ in decided[0]}
        self.waiting -= ids
        self.running |= ids

    @invariant()
    def put_down_often(self) -> None:
        if self.is_often:
            self.put_down()

    @rule()
    def put_down(self) -> None:
        self.twin = reborn(self.twin)
        found = differences(normalised(self.kept), normalised(self.twin))
        assert not found, "\n".join(found)

    @rule(seconds=st.sampled_from([0.0, 0.0, 1.0, 3.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.decide()

    @rule(jobs=st.lists(ASKED, min_size=1, max_size=5), decides=st.booleans())
    def submit(self, jobs: list[JobRequest], decides: bool) -> None:
        for asked in jobs:
            if self.kept.schedule.shortfall(shape_of(asked)) is not None:
                continue
            self.last_id += 1
            queue = asked.queue if self.has_queues else ""
            for kept in (self.kept, self.twin):
                how_long, shape = asked.duration, shape_of(asked)
                kept.schedule.submit(Job(self.last_id, shape, how_long, asked.priority, 0.0, queue))
            self.waiting.add(self.last_id)
        if decides:
            self.decide()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), priority=st.sampled_from([None, None, 0, 16, 31]), decides=st.booleans())
    def change_request(self, data: st.DataObject, priority: int | None, decides: bool) -> None:
        jobid = data.draw(st.sampled_from(sorted(self.waiting)))
        if priority is None:
            self.both("withdraw", jobid)
            self.waiting.discard(jobid)
        else:
            self.both("prioritize", jobid, priority)
        if decides:
            self.decide()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), decides=st.booleans())
    def free(self, data: st.DataObject, decides: bool) -> None:
        jobid = data.draw(st.sampled_from(sorted(self.running)))
        self.both("free", jobid)
        self.running.discard(jobid)
        if decides:
            self.decide()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), ranks=st.integers(1, (1 << RANKS) - 1), decides=st.booleans())
    def free_part(self, data: st.DataObject, ranks: int, decides: bool) -> None:
        jobid = data.draw(st.sampled_from(sorted(self.running)))
        self.both("free_part", jobid, (Group(ranks, (1 << CORES) - 1, 1),))
        if decides:
            self.decide()

    @precondition(lambda self: self.running and not self.is_calm)
    @rule(data=st.data(), seconds=st.sampled_from([2.0, 6.0, math.inf]))
    def extend(self, data: st.DataObject, seconds: float) -> None:
        self.both("extend", data.draw(st.sampled_from(sorted(self.running))), self.now + seconds)

    @precondition(_is_wild)
    @rule(by=st.sampled_from([-100.0, 7.0]))
    def clock_steps(self, by: float) -> None:
        self.now += by
        self.both("clock_stepped", by)

    @precondition(_is_wild)
    @rule(kind=st.sampled_from(["online", "online", "offline"]), rank=st.integers(0, RANKS - 1))
    def goes(self, kind: str, rank: int) -> None:
        self.both(kind, 1 << rank)

    @precondition(_is_wild)
    @rule(rank=st.integers(0, RANKS), shrinks=st.booleans())
    def inventory_changes(self, rank: int, shrinks: bool) -> None:
        if shrinks:
            self.both("shrink", 1 << rank)
            self.both("pop_left")
        else:
            self.both("grow", grown(rank), -1)

    @precondition(_is_wild)
    @rule(rank=st.integers(0, RANKS - 1), gives=st.booleans())
    def properties_change(self, rank: int, gives: bool) -> None:
        changed = {"fast": Idset.of([rank])}
        self.both("change_properties", *((changed, {}) if gives else ({}, changed)))

    @precondition(_is_wild)
    @rule(seconds=st.sampled_from([15.0, None]))
    def expire(self, seconds: float | None) -> None:
        self.both("expire", 0.0 if seconds is None else self.now + seconds)


@pytest.fixture(autouse=True)
def _short_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs be too far back with few of them."""
    monkeypatch.setattr(easy, "BACKFILL_DEPTH", 3)
    monkeypatch.setattr(conservative, "RESERVATIONS_MAX", 4)


class PutDownEasy(PutDown):
    policy = "easy"


class PutDownConservative(PutDown):
    policy = "conservative"


class PutDownQueues(PutDown):
    """Jobs of the anonymous queue are under FIFO."""

    has_queues = True


TestFifo = PutDown.TestCase
TestEasy = PutDownEasy.TestCase
TestConservative = PutDownConservative.TestCase
TestQueues = PutDownQueues.TestCase
TestFifo.settings = TestEasy.settings = TestConservative.settings = TestQueues.settings = settings(
    max_examples=12, stateful_step_count=40, deadline=None
)


# What a policy has found and would not find again


def made(policy: str, *held: tuple[int, int, float]) -> Kept:
    """Three nodes of eight cores; the jobs 1, 2, … hold cores of a rank until a time."""
    schedule = Schedule(policy)
    schedule.grow(machine(3, 8), -1)
    for jobid, (rank, cores, end) in enumerate(held, 1):
        expiration = end if end < math.inf else 0.0
        schedule.mark(jobid, machine(1, cores, first=rank, expiration=expiration))
    return Kept(schedule)


def started(kept: Kept, now: float, *jobs: tuple[int, Shape, float]) -> list[int]:
    """Submit jobs (id, shape, duration), and return who starts."""
    for jobid, shape, duration in jobs:
        kept.schedule.submit(Job(jobid, shape, duration, 16, 0.0))
    return [job.id for job, _ in kept.schedule.decide(now).started]


def test_reserved_cores_stay_as_they_were_chosen() -> None:
    """Job 5 leaves so little of node 2 that another choice would take the core there, not one of
    node 1, and job 6 would start on node 1.
    """
    kept = made("easy", (0, 8, 10.0), (1, 6, math.inf), (2, 5, math.inf))
    head, wide = slots(9), slots(1, 2)
    assert started(kept, 0.0, (4, head, 1.0), (5, wide, math.inf)) == [5]
    assert started(reborn(kept), 0.0, (6, slots(1, 2), math.inf)) == []
    assert started(kept, 0.0, (6, wide, math.inf)) == []


def test_equal_job_does_not_overtake_one_that_did_not_fit_beside_the_reservation() -> None:
    """Job 6 lets the reservation leave the core of node 1, which job 5 has wanted first."""
    kept = made("easy", (0, 8, 10.0), (1, 7, math.inf), (2, 6, math.inf))
    on_1, on_2 = (slots(1, constraint=parse_constraint({"ranks": [rank]})) for rank in ("1", "2"))
    again = slots(1, constraint=parse_constraint({"ranks": ["1"]}))
    assert started(kept, 0.0, (4, slots(9), 1.0), (5, on_1, math.inf)) == []
    assert started(kept, 0.0, (6, on_2, 5.0)) == [6]
    assert started(reborn(kept), 0.0, (7, again, math.inf)) == []
    assert started(kept, 0.0, (7, again, math.inf)) == []


def test_head_that_waits_for_overdue_grants_is_examined_when_one_ends() -> None:
    kept = made("easy", (0, 8, 10.0), (1, 8, 10.0))
    assert started(kept, 20.0, (4, nodes(2), 1.0)) == []
    after = reborn(kept)
    after.schedule.free(1)
    assert started(after, 20.0) == [4]
