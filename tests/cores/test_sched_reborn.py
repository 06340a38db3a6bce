"""A scheduler that is put down and taken up at any moment decides what it would have decided."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from flux_trio.config import SchedConfig
from flux_trio.cores.sched.core import SchedCore
from flux_trio.cores.turns import ClockStepped, TimerFired
from flux_trio.formats import Idset, ResourceSet
from flux_trio.messages import Request, topics
from tests.support.asking import gone, service_back
from tests.support.reborn_twin import Twins
from tests.support.sched_script import MANAGER, SchedScript, alloc, answer, jobspec, tell

pytestmark = pytest.mark.gate

RANKS = 4
LATE = 1e6  # however often the clock goes back, no time is below 0
QUEUES = {"batch": "easy", "debug": "fifo"}
CONSTRAINTS: list[Any] = [
    {"properties": ["fast"]},
    {"not": [{"properties": ["fast"]}]},
    {"hostlist": ["node[0,2]"]},
    {"hostlist": ["node9"]},  # which is never there: the request is denied
]


def nodes(count: int, first: int = 0) -> ResourceSet:
    """Every second node is fast."""
    ranks = range(first, first + count)
    return ResourceSet.build(
        ((rank, 0b1111, 0) for rank in ranks),
        lambda rank: f"node{rank}",
        properties={"fast": Idset.of([rank for rank in ranks if rank % 2])},
    )


def requests(actions: list[Any], topic: str) -> list[Request]:
    return [each for each in actions if isinstance(each, Request) and each.topic == topic]


class TwinScript(SchedScript):
    """The script with twins in place of its core."""

    def __init__(self, policy: str) -> None:
        self.core: Any = Twins(lambda: SchedCore(SchedConfig(policy=policy), queues=QUEUES))
        self.now = LATE
        self.kvs: dict[str, str] = {}
        self.kvs_waits = False
        self.unanswered = []
        self.commits = []
        self.started = self.core.start(self.now)


class Reborn(RuleBasedStateMachine):
    """All that a scheduler hears, in any order that RFC 27 and 28 allow."""

    @initialize(policy=st.sampled_from(["fifo", "easy", "conservative"]))
    def attach(self, policy: str) -> None:
        self.script = TwinScript(policy)
        self.script.attach(nodes(RANKS))
        self.next_id = 1
        self.asked: set[int] = set()

    @rule()
    def put_down(self) -> None:
        self.script.core.put_down_and_take_up()
        self.script.core.compare()

    @rule(
        count=st.integers(1, 6),
        nnodes=st.sampled_from([None, 1, 2, 9]),
        duration=st.sampled_from([0.0, 1.0, 30.0]),
        queue=st.sampled_from(["", "batch", "debug"]),
        priority=st.integers(0, 3),
        constraint=st.sampled_from([None, None, *CONSTRAINTS]),
    )
    def alloc(
        self,
        count: int,
        nnodes: int | None,
        duration: float,
        queue: str,
        priority: int,
        constraint: Any,
    ) -> None:
        system: dict[str, Any] = {"queue": queue} if queue else {}
        if constraint is not None:
            system["constraints"] = constraint
        spec = jobspec(count, nnodes=nnodes, duration=duration, **system)
        self.asked.add(self.next_id)
        self.script.turn(alloc(self.next_id, spec, priority=priority))
        self.next_id += 1

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def about_a_job(self, data: st.DataObject) -> None:
        jobid = data.draw(st.sampled_from(sorted(self.asked)))
        method = data.draw(st.sampled_from(["cancel", "free", "prioritize", "expiration"]))
        payload: dict[str, Any] = {"id": jobid}
        if method == "prioritize":
            payload = {"jobs": [[jobid, data.draw(st.integers(0, 9))]]}
        elif method == "expiration":
            payload["expiration"] = self.script.now + 5
        self.script.turn(tell(method, **payload))

    @rule(kind=st.sampled_from(["online", "offline", "shrink"]), rank=st.integers(0, RANKS - 1))
    def change(self, kind: str, rank: int) -> None:
        self.script.acquired(type=kind, targets=str(rank))

    @rule(rank=st.integers(0, RANKS + 1), seconds=st.sampled_from([None, None, 60.0]))
    def grow(self, rank: int, seconds: float | None) -> None:
        """Only with a grow does the classic edition tell when the instance ends."""
        expiration = 0.0 if seconds is None else self.script.now + seconds
        self.script.grow(nodes(1, rank).with_times(0.0, expiration))

    @rule(seconds=st.sampled_from([0.1, 5.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.script.now += seconds
        self.script.turn(TimerFired("annotate"))

    @rule(by=st.sampled_from([-3600.0, 7.0]))
    def clock_steps(self, by: float) -> None:
        self.script.now += by
        self.script.turn(ClockStepped(by))

    @rule(waits=st.booleans())
    def kvs_waits(self, waits: bool) -> None:
        self.script.kvs_waits = waits
        if not waits:
            self.script.turn(*self.script.take_kvs_answers())

    @rule(is_back=st.booleans())
    def job_manager_goes(self, is_back: bool) -> None:
        self.asked.clear()
        hellos = requests(self.script.turn(gone(topics.SCHED, MANAGER)), topics.SCHED_HELLO)
        if not hellos or not is_back:
            return
        self.script.kvs_waits = False
        told = self.script.turn(*self.script.hello_answers(hellos[0], {}))
        for ready in requests(told, topics.SCHED_READY):
            self.script.turn(answer(ready, {"count": 0}))

    @rule()
    def name_is_held_again(self) -> None:
        self.script.turn(service_back(topics.JOB_MANAGER))


TestReborn = Reborn.TestCase
TestReborn.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
