"""One policy a queue (RFC 33, Background): jobs of one queue do not wait for those of another.

Each queue is a lane with an order and a policy of its own; all share the pool and the grants. In a
turn the lane whose first job ranks highest decides first. Left out: reservations across lanes, so
that on resources of several queues a large job may be passed by jobs of another queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flux_trio.policies.policy import Decisions, Policy
from flux_trio.policies.state import Grant, Job, Rank, State


class Lane:
    """The jobs of one queue that wait, and who decides on them."""

    def __init__(self, state: State, make: Callable[[State], Policy]) -> None:
        self.state = state.lane()
        self.policy = make(self.state)

    @property
    def rank(self) -> Rank:
        """That of its first job; it has one."""
        head = self.state.queue.head
        assert head is not None
        return head.rank


class Lanes:
    """A lane for each queue that has had a job; `makers` have its policy, or `otherwise`."""

    def __init__(
        self,
        state: State,
        makers: Mapping[str, Callable[[State], Policy]],
        otherwise: Callable[[State], Policy],
    ) -> None:
        self._state = state
        self._makers = makers
        self._otherwise = otherwise
        self._lanes: dict[str, Lane] = {}

    def arrived(self, job: Job, /) -> None:
        """`job` waits in its lane."""
        lane = self._lanes.get(job.queue)
        if lane is None:
            maker = self._makers.get(job.queue, self._otherwise)
            lane = self._lanes[job.queue] = Lane(self._state, maker)
        lane.state.queue.add(job)
        lane.policy.arrived(job)

    def left(self, job: Job, /) -> None:
        """`job` waits no longer."""
        lane = self._lanes[job.queue]
        lane.state.queue.remove(job)
        lane.policy.left(job)

    def freed(self, grant: Grant, /) -> None:
        """Any lane may use it."""
        for lane in self._lanes.values():
            lane.policy.freed(grant)

    def reshaped(self) -> None:
        """It concerns any lane."""
        for lane in self._lanes.values():
            lane.policy.reshaped()

    def decide(self, now: float) -> Decisions:
        """Let each lane decide; what one takes is no longer there for the next."""
        decisions = Decisions()
        waiting = [lane for lane in self._lanes.values() if lane.state.queue]
        for lane in sorted(waiting, key=lambda each: each.rank):
            decided = lane.policy.decide(now)
            decisions.started += decided.started
            decisions.waiting |= decided.waiting
            for job, _ in decided.started:
                self._state.queue.remove(job)
            if decided.started:
                self._tell_others(lane)
        return decisions

    def _tell_others(self, lane: Lane) -> None:
        """Resources went behind their back."""
        for other in self._lanes.values():
            if other is not lane:
                other.policy.reshaped()
