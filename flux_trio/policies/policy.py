"""The interface between a schedule and the policy that decides for it.

A policy looks at the shared `State` and is told what changed, so that a turn costs nothing when
nothing did. It starts jobs itself (`State.start`); everything else changes behind its back, and is
reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from flux_trio.policies.state import Grant, Job


@dataclass(slots=True)
class Decisions:
    """What a policy decided in one turn."""

    started: list[tuple[Job, Grant]] = field(default_factory=list)
    """Jobs that have got resources, in the order they did."""
    waiting: dict[Job, float | None] = field(default_factory=dict)
    """Jobs worth a word: the head of the queue when it does not fit, and those with a reservation.

    With their estimated start in seconds since the Unix epoch, None when there is none.
    """


class Policy(Protocol):
    """Decides which jobs start. Made with the `State` it works on."""

    def arrived(self, job: Job, /) -> None:
        """`job` is in the queue, or has a new place in it."""

    def left(self, job: Job, /) -> None:
        """`job` was taken out of the queue, or is about to get a new place in it."""

    def freed(self, grant: Grant, /) -> None:
        """`grant` is over and its resources are back in the pool."""

    def reshaped(self) -> None:
        """Ranks came, went, or changed between up and down; or the end of a grant was moved."""

    def decide(self, now: float) -> Decisions:
        """Start what can start at `now`."""
