"""A schedule: the state, and the policy, which learns of each change.

All changes to either go through this class. The scheduler core translates messages of the job
manager and the resource service into calls, and answers them as RFC 27 and 28 require.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from flux_trio.formats import Groups, Idset, ResourceSet
from flux_trio.policies.lanes import POLICIES, Lanes
from flux_trio.policies.policy import Decisions, Policy
from flux_trio.policies.shape import Allocation, Shape
from flux_trio.policies.state import Grant, Job, State


class Schedule:
    """Queue, pool and grants under a policy, named as in `POLICIES` (KeyError for another name).

    With `queues`, each queue has the policy it names, and its jobs do not wait for jobs of another
    queue; `policy` then applies to queues that are not listed.

    All attributes are state. Which of the ranks that are shrunk still leave does not follow from
    the grants: a job may also hold ranks that were never in the inventory.
    """

    def __init__(self, policy: str = "fifo", queues: Mapping[str, str] | None = None) -> None:
        self.state = State()
        alone: Policy = POLICIES[policy](self.state)
        self.policy = Lanes(self.state, dict(queues), policy) if queues else alone
        self._leaving = 0  # ranks that were shrunk while a job held them

    def __getstate__(self) -> tuple[State, Policy, int]:
        return self.state, self.policy, self._leaving

    def __setstate__(self, state: tuple[State, Policy, int]) -> None:
        self.state, self.policy, self._leaving = state
        for grant in self.state.grants:
            self.state.pool.reserve_free(grant.allocation)

    # Requests

    def submit(self, job: Job) -> None:
        """Add `job` to the queue; it must not wait or hold resources already."""
        self.state.queue.add(job)
        self.policy.arrived(job)

    def withdraw(self, id_: int) -> Job | None:
        """Remove job `id_` from the queue and return it; None if it does not wait."""
        job = self.state.queue.get(id_)
        if job is not None:
            self.state.queue.remove(job)
            self.policy.left(job)
        return job

    def prioritize(self, id_: int, priority: int) -> None:
        """Move job `id_` to the place of `priority`; no effect if it does not wait."""
        job = self.withdraw(id_)
        if job is not None:
            job.priority = priority
            self.submit(job)

    def decide(self, now: float) -> Decisions:
        """Start the jobs that can start at `now` (seconds since the Unix epoch)."""
        return self.policy.decide(now)

    def lane_of(self, job: Job) -> State:
        """Return the state with the queue in which `job` waits."""
        return self.policy.lane_of(job) if isinstance(self.policy, Lanes) else self.state

    def shortfall(self, shape: Shape) -> str | None:
        """Return why `shape` can never fit (RFC 27, Alloc Deny); None if it can."""
        if self.state.pool.can_ever_fit(shape):
            return None
        room = self.state.pool.room_when_idle(shape)
        left = f"there are {room}" if shape.constraint is None else f"{room} fit"
        return f"unsatisfiable request: {shape.describe()}; {left}"  # short: RFC 6, 6.response.4

    # Grants

    def mark(self, id_: int, resources: ResourceSet) -> None:
        """Record that job `id_` holds `resources` (RFC 27, Hello); PoolError on a conflict."""
        allocation = Allocation.of(resources)
        self.state.pool.mark_allocated(allocation)
        self.state.grants.add(Grant(id_, allocation, resources.expiration or math.inf))
        self.policy.reshaped()

    def free(self, id_: int) -> int | None:
        """Take back the resources of job `id_`; None if it holds nothing.

        Returns the ranks, as a bit set, that were shrunk before and that no job holds any more.
        """
        grant = self.state.grants.get(id_)
        if grant is None:
            return None
        self.state.grants.remove(grant)
        return self._give_back(grant)

    def free_part(self, id_: int, part: Groups) -> int | None:
        """Take back what job `id_` holds of `part`; it then holds the rest, if only nothing.

        Returns what `free` returns.
        """
        grant = self.state.grants.get(id_)
        if grant is None:
            return None
        rest = Grant(id_, grant.allocation.without(part), grant.end, grant.stepped)
        self.state.grants.replace(grant, rest)
        return self._give_back(Grant(id_, grant.allocation.common(part), grant.end, grant.stepped))

    def _give_back(self, given: Grant) -> int:
        if given.allocation.groups:
            self.state.pool.give(given.allocation)
            self.policy.freed(given)
        return self._pop_leaving(given.allocation.ranks) if self._leaving else 0

    def extend(self, id_: int, end: float) -> bool:
        """Move the end of job `id_` to `end`, earlier or later; False if it holds nothing.

        `end` is on the wall clock as it was set when the job got its resources.
        """
        grant = self.state.grants.get(id_)
        if grant is None:
            return False
        self.state.grants.remove(grant)
        grant.end = end + grant.stepped
        self.state.grants.add(grant)
        self.policy.reshaped()
        return True

    def clock_stepped(self, by: float) -> None:
        """Shift all ends: the wall clock was set by `by` seconds, but jobs still take as long."""
        for grant in list(self.state.grants):
            self.state.grants.remove(grant)
            grant.end += by
            grant.stepped += by
            self.state.grants.add(grant)
        self.state.grants.stepped += by
        self.policy.reshaped()

    # Inventory

    def grow(self, resources: ResourceSet, online: int) -> None:
        """Add resources (RFC 28, Grow Response); ValueError if they contradict known ones."""
        held = [grant.allocation for grant in self.state.grants]
        self.state.pool.grow(resources, online, held)
        self._leaving &= ~resources.ranks.bits
        self.policy.reshaped()

    def expire(self, expiration: float) -> None:
        """Set the end of all resources: seconds since the Unix epoch, 0 for never."""
        self.state.pool.expire(expiration)
        self.policy.reshaped()

    def change_properties(self, added: Mapping[str, Idset], removed: Mapping[str, Idset]) -> None:
        """Give ranks properties, or take them away (RFC 20)."""
        self.state.pool.change_properties(added, removed)
        self.policy.reshaped()

    def shrink(self, ranks: int) -> None:
        """Remove `ranks` (RFC 28, Shrink Response); each leaves when no job holds it."""
        ranks &= self.state.pool.ranks
        self.state.pool.shrink(ranks)
        self.policy.reshaped()
        self._leaving |= ranks

    def holders(self, ranks: int) -> list[int]:
        """Return the ids of the jobs that hold resources on `ranks`."""
        return [grant.id for grant in self.state.grants if grant.allocation.ranks & ranks]

    def online(self, ranks: int) -> None:
        """Mark `ranks` as usable (RFC 28, Online Response)."""
        self.state.pool.online(ranks)
        self.policy.reshaped()

    def offline(self, ranks: int) -> None:
        """Mark `ranks` as unusable (RFC 28, Offline Response)."""
        self.state.pool.offline(ranks)
        self.policy.reshaped()

    def forget_jobs(self) -> None:
        """Remove all jobs from the queue and drop all grants."""
        for job in list(self.state.queue):
            self.withdraw(job.id)
        for grant in list(self.state.grants):
            self.state.grants.remove(grant)
            self.state.pool.give(grant.allocation)
        self.policy.reshaped()

    @property
    def leaving(self) -> int:
        """Return the ranks that were shrunk and that a job still holds, as a bit set."""
        return self._leaving

    def pop_left(self) -> int:
        """Return the leaving ranks that no job holds; all grants must be known by now."""
        return self._pop_leaving(self._leaving)

    def _pop_leaving(self, ranks: int) -> int:
        """Return the leaving ranks among `ranks` that no job holds, and forget them."""
        gone = self._leaving & ranks
        for grant in self.state.grants:
            if not gone:
                break
            gone &= ~grant.allocation.ranks
        self._leaving &= ~gone
        return gone
