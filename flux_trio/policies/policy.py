"""The interface between a schedule and its policy.

A policy reads the shared `State` and is called at each change, so a turn without changes costs
almost nothing. The policy itself starts jobs (`State.start`); the schedule makes and reports all
other changes.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from flux_trio.policies.state import Grant, Job


class Decisions(msgspec.Struct):
    """The decisions of one turn."""

    started: list[tuple[Job, Grant]] = []
    """Jobs that got resources, in this order."""
    waiting: dict[Job, float | None] = {}
    """The blocked head of the queue and the jobs with a reservation, with their estimated start.

    The start is in seconds since the Unix epoch; None if it cannot be estimated.
    """


class Policy(Protocol):
    """Decides which jobs start; constructed with its `State`.

    A class with the attribute `plans_ahead = True` may keep resources for jobs that wait. Of any
    other the worlds of `flux-trio fuzz` want that no job waits which a new policy would start.

    >>> from flux_trio.policies import Decisions, Job, Shape, State
    >>> class OneAtATime:
    ...     plans_ahead = True
    ...
    ...     def __init__(self, state: State) -> None:
    ...         self.state = state
    ...
    ...     def arrived(self, job): pass
    ...     def left(self, job): pass
    ...     def freed(self, grant): pass
    ...     def reshaped(self): pass
    ...
    ...     def decide(self, now: float) -> Decisions:
    ...         decisions, job = Decisions(), self.state.queue.head
    ...         if job is not None and not self.state.grants:
    ...             allocation = self.state.pool.find(job.shape)
    ...             if allocation is not None:
    ...                 decisions.started.append((job, self.state.start(job, allocation, now)))
    ...         return decisions

    A schedule calls it; here the calls are made by hand, for an instance of two nodes:

    >>> from flux_trio.formats import ResourceSet
    >>> state = State()
    >>> state.pool.grow(ResourceSet.build([(0, 0b11, 0), (1, 0b11, 0)], "node{}".format), 0b11)
    >>> node = Shape(count=1, cores=1, gpus=0, by_node=True, whole=False, nslots=1)
    >>> for number in (1, 2):
    ...     state.queue.add(Job(number, node, duration=60.0, priority=16, t_submit=0.0))
    >>> policy = OneAtATime(state)
    >>> [(job.id, grant.end) for job, grant in policy.decide(now=100.0).started]
    [(1, 160.0)]
    >>> policy.decide(now=101.0).started
    []
    """

    def arrived(self, job: Job, /) -> None:
        """Called when `job` has joined the queue or has moved to a new place in it."""

    def left(self, job: Job, /) -> None:
        """Called when `job` has left the queue or is about to move to a new place in it."""

    def freed(self, grant: Grant, /) -> None:
        """Called when the resources of `grant` are back in the pool.

        They may be a part of what the job holds: then it holds another grant with the same end.
        """

    def reshaped(self) -> None:
        """Called when ranks came, left, went up or down, or the end of a grant has changed."""

    def decide(self, now: float) -> Decisions:
        """Start the jobs that can start at `now`."""
