"""A schedule: the state, and the policy that is told of each change to it.

The one way to change either. What the job manager and the resource service say becomes a
call here; what RFC 27 and 28 want done about it is the caller's business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from flux_trio.formats import ResourceSet
from flux_trio.policies.lanes import POLICIES, Lanes
from flux_trio.policies.policy import Decisions, Policy
from flux_trio.policies.shape import Allocation, Shape
from flux_trio.policies.state import Grant, Job, State


class Schedule:
    """Queue, pool and grants under a policy, named as in `POLICIES` (KeyError for another name).

    With `queues`, each has the policy it names, and its jobs wait for no other queue's; `policy`
    is for jobs of queues that are not there.
    """

    def __init__(self, policy: str = "fifo", queues: Mapping[str, str] | None = None) -> None:
        self.state = State()
        alone: Policy = POLICIES[policy](self.state)
        self.policy = Lanes(self.state, dict(queues), policy) if queues else alone
        self._leaving = 0  # ranks that were shrunk while somebody held them

    # Requests

    def submit(self, job: Job) -> None:
        """Let `job`, which neither waits nor holds anything, wait."""
        self.state.queue.add(job)
        self.policy.arrived(job)

    def withdraw(self, id_: int) -> Job | None:
        """Let job `id_` wait no longer; None when it does not."""
        job = self.state.queue.get(id_)
        if job is not None:
            self.state.queue.remove(job)
            self.policy.left(job)
        return job

    def prioritize(self, id_: int, priority: int) -> None:
        """Give job `id_` the place of `priority`; nothing when it does not wait."""
        job = self.withdraw(id_)
        if job is not None:
            job.priority = priority
            self.submit(job)

    def decide(self, now: float) -> Decisions:
        """Start what can start at `now` (seconds since the Unix epoch)."""
        return self.policy.decide(now)

    def shortfall(self, shape: Shape) -> str | None:
        """Why `shape` can never be had (RFC 27, Alloc Deny); None when some day it can."""
        if self.state.pool.can_ever_fit(shape):
            return None
        room = self.state.pool.room_when_idle(shape)
        where = " that meet its constraints" if shape.constraint is not None else ""
        return f"unsatisfiable request: {shape.describe()} wanted, there are only {room}{where}"

    # Grants

    def mark(self, id_: int, resources: ResourceSet) -> None:
        """Job `id_` holds `resources` (RFC 27, Hello). Raises PoolError if somebody else does."""
        allocation = Allocation.of(resources)
        self.state.pool.take(allocation)
        self.state.grants.add(Grant(id_, allocation, resources.expiration or math.inf))
        self.policy.reshaped()

    def free(self, id_: int) -> int | None:
        """Job `id_` gives back what it holds; None when that is nothing.

        The ranks, as a bit set, that were shrunk before and are held by nobody any more.
        """
        grant = self.state.grants.get(id_)
        if grant is None:
            return None
        self.state.grants.remove(grant)
        self.state.pool.give(grant.allocation)
        self.policy.freed(grant)
        return self._take_leaving(grant.allocation.ranks) if self._leaving else 0

    def extend(self, id_: int, end: float) -> bool:
        """Job `id_` now ends at `end`, earlier or later; False when it holds nothing.

        `end` is by the clock of the time when the job was granted what it holds.
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
        """The wall clock was set by `by` seconds: what runs still takes as long as it did."""
        for grant in list(self.state.grants):
            self.state.grants.remove(grant)
            grant.end += by
            grant.stepped += by
            self.state.grants.add(grant)
        self.state.grants.stepped += by
        self.policy.reshaped()

    # Inventory

    def grow(self, resources: ResourceSet, online: int) -> None:
        """Add resources (RFC 28, Grow Response). ValueError if they contradict those at hand."""
        held = [grant.allocation for grant in self.state.grants]
        self.state.pool.grow(resources, online, held)
        self._leaving &= ~resources.ranks.bits
        self.policy.reshaped()

    def expire(self, expiration: float) -> None:
        """All resources end at `expiration`, seconds since the Unix epoch, 0 for never."""
        self.state.pool.expire(expiration)
        self.policy.reshaped()

    def shrink(self, ranks: int) -> None:
        """Remove `ranks` (RFC 28, Shrink Response); they leave when nobody holds them."""
        ranks &= self.state.pool.ranks
        self.state.pool.shrink(ranks)
        self.policy.reshaped()
        self._leaving |= ranks

    def holders(self, ranks: int) -> list[int]:
        """The ids of the jobs that hold something of `ranks`."""
        return [grant.id for grant in self.state.grants if grant.allocation.ranks & ranks]

    def online(self, ranks: int) -> None:
        """`ranks` may be used (RFC 28, Online Response)."""
        self.state.pool.online(ranks)
        self.policy.reshaped()

    def offline(self, ranks: int) -> None:
        """`ranks` must not be used (RFC 28, Offline Response)."""
        self.state.pool.offline(ranks)
        self.policy.reshaped()

    def forget_jobs(self) -> None:
        """Nobody waits and nobody holds anything, until told again."""
        for job in list(self.state.queue):
            self.withdraw(job.id)
        for grant in list(self.state.grants):
            self.state.grants.remove(grant)
            self.state.pool.give(grant.allocation)
        self.policy.reshaped()

    @property
    def leaving(self) -> int:
        """The ranks that were shrunk and are held still, as a bit set."""
        return self._leaving

    def take_left(self) -> int:
        """Those of the leaving ranks that nobody holds, of whom all grants must be known."""
        return self._take_leaving(self._leaving)

    def _take_leaving(self, ranks: int) -> int:
        """Those of the leaving `ranks` that nobody holds; they have left then."""
        gone = self._leaving & ranks
        for grant in self.state.grants:
            if not gone:
                break
            gone &= ~grant.allocation.ranks
        self._leaving &= ~gone
        return gone
