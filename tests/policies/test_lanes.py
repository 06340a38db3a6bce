"""Queues as lanes: one policy each, and no job waits for those of another queue."""

from __future__ import annotations

import pytest

from flux_trio.formats import Idset, parse_constraint
from flux_trio.policies import POLICIES, Job, Schedule, Shape
from tests.support.scheduling import machine, nodes


def schedule(**queues: str) -> Schedule:
    """Four nodes of a core: rank 3 is for debugging, the others for the rest."""
    made = Schedule("fifo", queues)
    properties = {"batch": Idset.parse("0-2"), "debug": Idset.parse("3")}
    made.grow(machine(4, 1, properties=properties), -1)
    return made


def of(property_: str, count: int) -> Shape:
    return nodes(count, constraint=parse_constraint({"properties": [property_]}))


def submit(
    to: Schedule,
    jobid: int,
    queue: str,
    shape: Shape,
    duration: float = 10.0,
    *,
    priority: int = 16,
) -> None:
    to.submit(Job(jobid, shape, duration, priority, 0.0, queue))


def started(by: Schedule, now: float = 0.0) -> list[int]:
    return [job.id for job, _ in by.decide(now).started]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_full_queue_does_not_hold_up_another(policy: str) -> None:
    """33.background.1: on disjoint resources."""
    both = schedule(batch=policy, debug=policy)
    for jobid in (1, 2):
        submit(both, jobid, "batch", of("batch", 3))
    submit(both, 3, "debug", of("debug", 1))
    assert started(both) == [1, 3]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_on_the_same_resources_the_better_head_is_served_first(policy: str) -> None:
    """33.background.1: on overlapping resources."""
    both = schedule(batch=policy, debug=policy)
    submit(both, 1, "batch", nodes(4))
    submit(both, 2, "debug", nodes(4), priority=17)
    assert started(both) == [2]
    both.free(2)
    assert started(both, 1.0) == [1]


def test_each_queue_has_its_own_policy() -> None:
    """33.background.4: FIFO does not let a small job pass, EASY does."""
    both = schedule(strict="fifo", loose="easy")
    submit(both, 1, "strict", nodes(2), 100.0)
    for queue, first in (("strict", 10), ("loose", 20)):
        submit(both, first, queue, nodes(4))
        submit(both, first + 1, queue, nodes(1), 1.0)
    assert started(both) == [1, 21]


def test_job_of_a_queue_nobody_told_of_is_served_by_the_general_policy() -> None:
    one = schedule(batch="easy")
    submit(one, 1, "other", nodes(1))
    assert started(one) == [1]


def test_job_that_was_canceled_or_moved_waits_nowhere_else() -> None:
    both = schedule(batch="easy", debug="easy")
    submit(both, 1, "batch", nodes(4))
    submit(both, 2, "debug", nodes(4))
    assert both.withdraw(1) is not None
    submit(both, 1, "debug", nodes(4), priority=20)
    assert started(both) == [1]
    both.forget_jobs()
    assert started(both) == []
    assert len(both.state.queue) == 0


def test_head_that_waits_is_told_of_what_another_lane_took() -> None:
    """A reservation made before would promise what is gone."""
    both = schedule(batch="easy", debug="easy")
    submit(both, 1, "batch", nodes(3), 10.0)
    submit(both, 2, "batch", nodes(4), 10.0)
    decided = both.decide(0.0)
    assert list(decided.waiting.values()) == [10.0]
    submit(both, 3, "debug", nodes(1), 50.0)
    assert started(both, 1.0) == [3]
    (start,) = both.decide(2.0).waiting.values()
    assert start == 51.0
