"""Conservative backfill: every job near the front has a reservation that no other job may delay.

Jobs get places in time and space in the order of the queue. A job keeps its place. When resources
are freed early, each job in turn may move to an earlier place, never to a later one. A job that
moves may leave room for a job ahead of it. The next plan offers that room in queue order too, so a
new job gets only what the jobs ahead of it leave. A job loses its place only to a job of higher
rank, or if the machine or a promise changes: a rank goes down, a grant is extended or overdue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from flux_trio.formats.meanings import Time
from flux_trio.policies.policy import Decisions
from flux_trio.policies.profile import Place, Profile, Released, Span
from flux_trio.policies.state import Grant, Job, State

RESERVATIONS_MAX: Final = 64
"""Number of jobs with a reservation: planning them takes some milliseconds on 1,000 nodes. Jobs
further back do not start before they advance to this place."""


class Plan(msgspec.Struct):
    """The last plan as it is dumped: the places, and what has changed since then."""

    made: Time
    """The time of the plan, in seconds since the Unix epoch; what was released counts from it."""
    places: dict[Job, Span | None]
    """In queue order; None for a job that fits at no known time."""
    released: list[Released]
    """Resources that the next plan offers to the jobs with a place."""
    freed: list[Grant]
    """The grants that have ended since the plan."""


class Conservative:
    """Plans the first jobs of the queue; plans again after a change.

    Its state is the last plan (`Plan`), and whether a change since then may let a job start. The
    plan is history: a job keeps its place although it might get another now, and only what was
    released since then improves it. Without places there is no such history, since new jobs are
    placed by the grants alone. The profile is derived: it follows from the pool, the grants and the
    plan.
    """

    plans_ahead: ClassVar = True  # see `Policy`

    def __init__(self, state: State) -> None:
        self._state = state
        self._places: dict[Job, Place | None] = {}  # in queue order; None: fits at no known time
        self._profile: Profile | None = None  # with all places reserved; None: must be rebuilt
        self._freed: list[Grant] = []  # since the last plan; empty without a profile
        self._stale = False  # a change may let a job start

    def __getstate__(self) -> tuple[State, bool, Plan | None]:
        profile = self._profile
        if profile is None or not self._places:
            return self._state, self._stale, None
        places = {job: place.span if place else None for job, place in self._places.items()}
        plan = Plan(profile.now, places, profile.released, self._freed)
        return self._state, self._stale, plan

    def __setstate__(self, state: tuple[State, bool, Plan | None]) -> None:
        self._state, self._stale, plan = state
        self._places, self._profile, self._freed = {}, None, []
        if plan is None:
            return
        self._freed = plan.freed
        self._profile = profile = Profile(self._state, plan.made, plan.freed)
        for job, span in plan.places.items():
            self._places[job] = None
            if span is not None:
                place = self._places[job] = profile.place_of(span)
                profile.reserve(place)
        profile.released = plan.released

    def arrived(self, job: Job, /) -> None:
        """Plan `job`, unless too many jobs are ahead of it."""
        if self._state.queue.is_within(job, RESERVATIONS_MAX):
            self._stale = True

    def left(self, job: Job, /) -> None:
        """Release the job's place; other jobs may move up."""
        if job not in self._places:
            return
        place = self._places.pop(job)
        if place is not None and self._profile is not None:
            self._profile.release(place)
        self._stale = True

    def freed(self, grant: Grant, /) -> None:
        if self._profile is not None:
            self._freed.append(grant)
        self._stale = True

    def reshaped(self) -> None:
        """Plan all jobs anew."""
        self._places.clear()
        self._profile = None
        self._freed.clear()
        self._stale = True

    def decide(self, now: float) -> Decisions:
        """Start the jobs whose place begins now."""
        decisions = Decisions()
        if self._stale:
            self._stale = False
            self._plan(self._profile_at(now), now, decisions)
        for job, place in self._places.items():
            finite = place is not None and place.start < math.inf
            decisions.waiting[job] = place.start if place is not None and finite else None
        return decisions

    def _profile_at(self, now: float) -> Profile:
        """Return the profile from `now` on, in which the kept places are reserved."""
        if self._profile is None:
            self._profile = Profile(self._state, now)
            return self._profile
        for grant in self._freed:
            self._profile.vacate(grant)
        self._freed.clear()
        self._drop_places(self._profile, now)
        self._profile.advance(now)
        return self._profile

    def _drop_places(self, profile: Profile, now: float) -> None:
        """Drop all places from the first job that is new, or whose start passed in vain."""
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
        """Place the jobs without a place, improve the other places, start jobs that begin now.

        A job with a place was examined in the last plan or later, so it is examined only where
        resources were released since then.
        """
        recent, profile.released = profile.released, []
        planned = 0
        while jobs := self._state.queue.places(planned, RESERVATIONS_MAX):
            for job in jobs:
                if job in self._places:
                    place = self._improve(job, profile, recent + profile.released)
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
        """Return the earliest place for `job`, reserved; only `released` can improve its place."""
        own = self._places[job]
        before = math.nextafter(own.start, 0.0) if own is not None else math.inf
        place = profile.earliest(job, before, own, released)
        if place is None:
            return own
        if own is not None:
            profile.release(own)
        profile.reserve(place)
        return place
