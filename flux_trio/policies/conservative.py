"""Conservative backfill: every job near the front has a reservation, and none may delay another's.

Jobs are given places in time and space in the order of the queue. A place once given is kept: when
something is freed early, each job in turn may move to an earlier place, and none moves to a
later one. What can cost a job its place is a job that ranks above it, or a change of the
machine or of what was promised: a rank down, a grant made longer or overdue.
"""

from __future__ import annotations

import math
from typing import Final

from flux_trio.policies.policy import Decisions
from flux_trio.policies.profile import Place, Profile
from flux_trio.policies.state import Grant, Job, State

RESERVATIONS_MAX: Final = 64
"""Jobs that have a reservation: planning that many takes some milliseconds on 1,000 nodes. Those
further back do not start before they have come this far."""


class Conservative:
    """Plans for the first jobs of the queue; plans again when something changed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._places: dict[Job, Place | None] = {}  # in order; None: fits at no time as things are
        self._stale = False  # something changed that may let a job start
        self._void = False  # places may hold no longer

    def arrived(self, _job: Job, /) -> None:
        """Plan it."""
        self._stale = True

    def left(self, job: Job, /) -> None:
        """Let others move up."""
        self._places.pop(job, None)
        self._stale = True

    def freed(self, _grant: Grant, /) -> None:
        """Let jobs move up."""
        self._stale = True

    def reshaped(self) -> None:
        """Plan all anew."""
        self._stale = self._void = True

    def decide(self, now: float) -> Decisions:
        """Start the jobs whose place is here and now."""
        decisions = Decisions()
        if self._stale:
            self._plan(now, decisions)
        for job, place in self._places.items():
            finite = place is not None and place.start < math.inf
            decisions.waiting[job] = place.start if place is not None and finite else None
        return decisions

    def _plan(self, now: float, decisions: Decisions) -> None:
        old = {} if self._void else self._places
        self._places, self._stale, self._void = {}, False, False
        jobs = self._state.queue.first(RESERVATIONS_MAX)
        if not jobs:
            return  # spares the profile
        profile = Profile(self._state, now)
        kept = self._keep(jobs, old, profile, now)
        while jobs:
            for job in jobs:
                place = self._improve(job, kept.get(job), profile)
                if place is not None and place.start <= now:
                    decisions.started.append((job, self._state.start(job, place.allocation, now)))
                else:
                    self._places[job] = place
            moved_up = self._state.queue.first(RESERVATIONS_MAX)
            jobs = [job for job in moved_up if job not in self._places]

    def _keep(
        self, jobs: list[Job], old: dict[Job, Place | None], profile: Profile, now: float
    ) -> dict[Job, Place]:
        """The places that still hold, down to the first job without one: it may need them."""
        kept: dict[Job, Place] = {}
        for job in jobs:
            place = old.get(job)
            if place is None and job not in old:
                break
            if place is not None and profile.still_holds(place, now):
                profile.reserve(place)
                kept[job] = place
        return kept

    def _improve(self, job: Job, own: Place | None, profile: Profile) -> Place | None:
        """The earliest place for `job`, reserved; its own if there is no earlier one."""
        if own is None:
            place = profile.earliest(job)
            if place is not None:
                profile.reserve(place)
            return place
        place = profile.earliest(job, math.nextafter(own.start, 0.0), own)
        if place is None:
            return own
        profile.release(own)
        profile.reserve(place)
        return place
