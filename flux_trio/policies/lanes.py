"""One policy a queue (RFC 33, Background): jobs of one queue do not wait for those of another.

Each queue is a lane with an order and a policy of its own; all share the pool and the grants. In a
turn the lane whose first job ranks highest decides first. Left out: reservations across lanes, so
that on resources of several queues a large job may be passed by jobs of another queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from flux_trio.policies.conservative import Conservative
from flux_trio.policies.easy import Easy
from flux_trio.policies.fifo import Fifo
from flux_trio.policies.policy import Decisions, Policy
from flux_trio.policies.state import Grant, Job, Rank, State

POLICIES: Final[Mapping[str, Callable[[State], Policy]]] = {
    "fifo": Fifo,
    "easy": Easy,
    "conservative": Conservative,
}


class Lane:
    """The jobs of one queue that wait, and who decides on them."""

    def __init__(self, state: State, policy: str) -> None:
        self.state = state.lane()
        self.policy = POLICIES[policy](self.state)

    @property
    def rank(self) -> Rank:
        """That of its first job; it has one."""
        head = self.state.queue.head
        assert head is not None
        return head.rank


class Lanes:
    """A lane for each queue that has had a job.

    `policies` names the policy of each queue, `otherwise` that of a queue which is not there.
    Raises KeyError for a policy that is not in `POLICIES`.
    """

    def __init__(self, state: State, policies: dict[str, str], otherwise: str) -> None:
        for policy in policies.values():
            POLICIES[policy]
        self._state = state
        self._policies = policies
        self._otherwise = otherwise
        self._lanes: dict[str, Lane] = {}

    def arrived(self, job: Job, /) -> None:
        """`job` waits in its lane."""
        lane = self._lanes.get(job.queue)
        if lane is None:
            policy = self._policies.get(job.queue, self._otherwise)
            lane = self._lanes[job.queue] = Lane(self._state, policy)
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
