"""Conservative backfill: every job near the front has a reservation, and none may delay another's.

Jobs are given places in time and space in the order of the queue. A place once given is kept: when
something is freed early, each job in turn may move to an earlier place, and none moves to a
later one. A job that moves may leave room for one ahead of it: the next plan offers that room in
the order of the queue too, so that a job that has just come gets what those ahead leave. What can
cost a job its place is a job that ranks above it, or a change of the machine or of what was
promised: a rank down, a grant made longer or overdue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from flux_trio.policies.policy import Decisions
from flux_trio.policies.profile import Place, Profile, Released
from flux_trio.policies.state import Grant, Job, State

RESERVATIONS_MAX: Final = 64
"""Jobs that have a reservation: planning that many takes some milliseconds on 1,000 nodes. Those
further back do not start before they have come this far."""


class Conservative:
    """Plans for the first jobs of the queue; plans again when something changed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._places: dict[Job, Place | None] = {}  # in order; None: fits at no time as things are
        self._profile: Profile | None = None  # with all places reserved; None: to be made
        self._freed: list[Grant] = []  # since the last plan
        self._stale = False  # something changed that may let a job start

    def arrived(self, job: Job, /) -> None:
        """Plan it, unless too many are ahead of it."""
        if self._state.queue.is_within(job, RESERVATIONS_MAX):
            self._stale = True

    def left(self, job: Job, /) -> None:
        """Let others move up."""
        if job not in self._places:
            return
        place = self._places.pop(job)
        if place is not None and self._profile is not None:
            self._profile.release(place)
        self._stale = True

    def freed(self, grant: Grant, /) -> None:
        """Let jobs move up."""
        self._freed.append(grant)
        self._stale = True

    def reshaped(self) -> None:
        """Plan all anew."""
        self._profile = None
        self._stale = True

    def decide(self, now: float) -> Decisions:
        """Start the jobs whose place is here and now."""
        decisions = Decisions()
        if self._stale:
            self._stale = False
            self._plan(self._profile_at(now), now, decisions)
        for job, place in self._places.items():
            finite = place is not None and place.start < math.inf
            decisions.waiting[job] = place.start if place is not None and finite else None
        return decisions

    def _profile_at(self, now: float) -> Profile:
        """The profile from `now` on, with the places reserved that are kept."""
        if self._profile is None:
            self._profile = Profile(self._state, now)
            self._places.clear()
        else:
            for grant in self._freed:
                self._profile.vacate(grant)
            self._drop_places(self._profile, now)
            self._profile.advance(now)
        self._freed.clear()
        return self._profile

    def _drop_places(self, profile: Profile, now: float) -> None:
        """Drop the places behind a job that has none yet, or whose time has come in vain."""
        kept: dict[Job, Place | None] = {}
        for job in self._state.queue.places(0, RESERVATIONS_MAX):
            if job not in self._places:
                break
            place = self._places[job]
            if place is not None and (
                place.start < now or (place.start == now and not profile.is_idle(place))
            ):
                break
            kept[job] = place
        for job, place in self._places.items():
            if place is not None and job not in kept:
                profile.release(place)
        self._places = kept

    def _plan(self, profile: Profile, now: float, decisions: Decisions) -> None:
        """Give places to those who have none, earlier ones to others; start whose time it is.

        A job that was looked at is looked at again only where something was released since: at the
        latest in the last plan, behind it.
        """
        lately, profile.released = profile.released, []
        planned = 0
        while jobs := self._state.queue.places(planned, RESERVATIONS_MAX):
            for job in jobs:
                if job in self._places:
                    place = self._improve(job, profile, lately + profile.released)
                elif (place := profile.earliest(job)) is not None:
                    profile.reserve(place)
                if place is not None and place.start <= now:
                    self._places.pop(job, None)
                    grant = self._state.start(job, place.allocation, now)
                    profile.began(place, grant)
                    decisions.started.append((job, grant))
                else:
                    self._places[job] = place
            planned = len(self._places)

    def _improve(self, job: Job, profile: Profile, released: Sequence[Released]) -> Place | None:
        """The earliest place for `job`, reserved, when it has looked at all but `released`."""
        own = self._places[job]
        before = math.nextafter(own.start, 0.0) if own is not None else math.inf
        place = profile.earliest(job, before, own, released)
        if place is None:
            return own
        if own is not None:
            profile.release(own)
        profile.reserve(place)
        return place
