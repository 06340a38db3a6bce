"""A dump of the scheduler has what decides, and nothing of its policies that can be derived."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flux_trio.config import SchedConfig
from flux_trio.cores.sched.core import SchedCore
from flux_trio.cores.turns import TimerFired
from flux_trio.editions import CLASSIC
from flux_trio.editions.rfc27 import AllocType
from flux_trio.formats import Idset, ResourceSet
from flux_trio.policies import POLICIES
from tests.support.fingerprint import digest_of, normalised
from tests.support.sched_script import SchedScript, alloc, answers, jobspec, tell

DENY = int(AllocType.DENY)
ROOM = "flux_trio.policies."
FAST = {"properties": ["fast"]}

ALWAYS = {
    "lanes:Lanes",
    "schedule:Schedule",
    "pool:Pool",
    "state:State.grants",
    "state:State.pool",
    "state:State.queue",
    "state:Grants",
    "state:Queue",
    *(f"state:Job.{name}" for name in ("duration", "id", "priority", "queue", "shape", "t_submit")),
    *(f"state:Grant.{name}" for name in ("allocation", "end", "id", "stepped")),
    *(f"shape:Allocation.{name}" for name in ("groups", "nslots")),
    *(
        f"shape:Shape.{name}"
        for name in ("by_node", "constraint", "cores", "count", "gpus", "nslots", "whole")
    ),
}
LANES = {"lanes:Lane.policy", "lanes:Lane.state", "state:LaneState"}
OF_POLICY = {
    "fifo": {"fifo:Fifo"},
    "easy": {
        "easy:Easy",
        *(f"easy:Head.{name}" for name in ("behind", "job", "reservation")),
        *(f"easy:Behind.{name}" for name in ("beside", "fresh", "gone")),
        *(f"easy:Reservation.{name}" for name in ("is_overdue", "kept", "start")),
    },
    "conservative": {
        "conservative:Conservative",
        *(f"conservative:Plan.{name}" for name in ("freed", "made", "places", "released")),
        *(f"profile:Span.{name}" for name in ("allocation", "end", "start")),
        *(f"profile:Released.{name}" for name in ("bits", "since", "until")),
    },
}
"""All that a dump may have of each policy: a class that names its attributes with each of them."""


def names_in(data: Any) -> Iterator[str]:
    """The classes of `policies` in a dump, and their attributes."""
    match data:
        case ["object", _, str(name), kind, held]:
            if name.startswith(ROOM):
                name = name.removeprefix(ROOM)
                yield from (f"{name}.{each}" for each in held) if kind == "attributes" else [name]
            yield from names_in(held)
        case list():
            for each in data:
                yield from names_in(each)
        case dict():
            for each in data.values():
                yield from names_in(each)


class QueueScript(SchedScript):
    """The script of a scheduler with a queue that has a policy of its own."""

    def __init__(self, policy: str) -> None:
        super().__init__(policy)
        self.core = SchedCore(SchedConfig(policy=policy), CLASSIC, {"batch": policy})
        self.started = self.core.start(self.now)


def machine() -> ResourceSet:
    """Four nodes, the last one fast."""
    return ResourceSet.build(
        ((rank, 0b11, 0) for rank in range(4)),
        lambda rank: f"node{rank}",
        properties={"fast": Idset.of([3])},
    )


def busy(script: SchedScript) -> SchedScript:
    """Jobs run and wait, with reservations that others moved for; one was denied."""
    script.attach(machine())

    def ask(jobid: int, count: int, duration: float, **system: Any) -> None:
        script.turn(alloc(jobid, jobspec(count, duration=duration, queue="batch", **system)))

    ask(1, 2, 50.0)
    ask(2, 3, 100.0)
    ask(3, 8, 30.0)  # the head: it waits for all
    ask(4, 1, 20.0)  # ends before the head begins
    ask(5, 1, 500.0, constraints=FAST)
    ask(6, 4, 10.0)
    ask(7, 1, 0.0)
    script.now += 5
    script.turn(tell("free", id=2))
    script.turn(TimerFired("annotate"))
    ask(8, 3, 700.0, constraints=FAST)  # never fits
    return script


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("made", [SchedScript, QueueScript])
def test_names_of_policies_in_a_dump(policy: str, made: Any) -> None:
    script = busy(made(policy))
    lanes = LANES if made is QueueScript else {"lanes:Lanes"}
    expected = (ALWAYS | OF_POLICY[policy]) ^ lanes
    assert set(names_in(script.core.dump())) == expected


def fingerprint_without_counts(script: SchedScript) -> str:
    state = normalised(script.core)
    del state["core._methods"]
    return digest_of(state)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_request_that_is_denied_changes_nothing(policy: str) -> None:
    """It is counted for the statistics of requests, which decide nothing."""
    script = busy(SchedScript(policy))
    before = fingerprint_without_counts(script)
    [told] = answers(script.turn(alloc(9, jobspec(9, constraints={"hostlist": ["node[0-1]"]}))))
    assert told["type"] == DENY
    assert fingerprint_without_counts(script) == before
