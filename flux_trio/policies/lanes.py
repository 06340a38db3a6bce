"""One policy per queue (RFC 33, Background): jobs of one queue do not wait for those of another.

Each queue is a lane with its own order and policy; all lanes share the pool and the grants. In each
turn, the lane whose first job has the highest rank decides first. There are no reservations across
lanes, so jobs of another queue may pass a large job on resources that the queues share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flux_trio.config import POLICY_NAMES
from flux_trio.policies.conservative import Conservative
from flux_trio.policies.easy import Easy
from flux_trio.policies.fifo import Fifo
from flux_trio.policies.policy import Decisions, Policy
from flux_trio.policies.state import Grant, Job, LaneState, Rank, State

POLICIES: Final[dict[str, Callable[[State], Policy]]] = dict(
    zip(POLICY_NAMES, (Fifo, Easy, Conservative), strict=True)
)
"""The policies by name: ours, and those of users' files that this process has loaded."""


class Lane:
    """The waiting jobs of one queue, and the policy that decides on them."""

    def __init__(self, state: LaneState, policy: str) -> None:
        self.state = state
        self.policy = POLICIES[policy](self.state)

    @property
    def rank(self) -> Rank:
        """Return the rank of the first job; the lane must not be empty."""
        head = self.state.queue.head
        assert head is not None
        return head.rank


class Lanes:
    """The lanes of all queues that have had a job.

    `policies` names the policy of each queue, `otherwise` the policy of any other queue. Raises
    KeyError for a policy that is not in `POLICIES`.

    Its state is the lanes with jobs and what they were made with. A lane without jobs decides like
    a new one.
    """

    def __init__(self, state: State, policies: dict[str, str], otherwise: str) -> None:
        for policy in policies.values():
            POLICIES[policy]
        self._state = state
        self._policies = policies
        self._otherwise = otherwise
        self._lanes: dict[str, Lane] = {}

    def __getstate__(self) -> tuple[State, dict[str, str], str, dict[str, Lane]]:
        lanes = {name: lane for name, lane in sorted(self._lanes.items()) if lane.state.queue}
        return self._state, self._policies, self._otherwise, lanes

    def __setstate__(self, state: tuple[State, dict[str, str], str, dict[str, Lane]]) -> None:
        self._state, self._policies, self._otherwise, self._lanes = state

    def arrived(self, job: Job, /) -> None:
        """Add `job` to the lane of its queue."""
        lane = self._lanes.get(job.queue)
        if lane is None:
            policy = self._policies.get(job.queue, self._otherwise)
            lane = self._lanes[job.queue] = Lane(LaneState(self._state, job.queue), policy)
        lane.state.queue.add(job)
        lane.policy.arrived(job)

    def left(self, job: Job, /) -> None:
        """Remove `job` from the lane of its queue."""
        lane = self._lanes[job.queue]
        lane.state.queue.remove(job)
        lane.policy.left(job)

    def lane_of(self, job: Job, /) -> State:
        """Return the state with the lane in which `job` waits."""
        return self._lanes[job.queue].state

    def freed(self, grant: Grant, /) -> None:
        """Tell all lanes, since any of them may use the resources."""
        for lane in self._lanes.values():
            lane.policy.freed(grant)

    def reshaped(self) -> None:
        for lane in self._lanes.values():
            lane.policy.reshaped()

    def decide(self, now: float) -> Decisions:
        """Let each lane decide in turn; a lane sees the resources that earlier lanes left."""
        decisions = Decisions()
        waiting = [lane for lane in self._lanes.values() if lane.state.queue]
        for lane in sorted(waiting, key=lambda each: each.rank):
            decided = lane.policy.decide(now)
            decisions.started += decided.started
            decisions.waiting |= decided.waiting
            for job, _ in decided.started:
                self._state.queue.remove(job)
            if decided.started:
                self._notify_other_lanes(lane)
        return decisions

    def _notify_other_lanes(self, lane: Lane) -> None:
        """Tell the other lanes that the pool has changed."""
        for other in self._lanes.values():
            if other is not lane:
                other.policy.reshaped()
