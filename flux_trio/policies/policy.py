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
