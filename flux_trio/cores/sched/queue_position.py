"""sched.explain: where a request stands, and who holds what it waits for. Pure.

The state is looked at when somebody asks; nothing is kept for an answer.
"""

from __future__ import annotations

import math
from typing import Final

from flux_trio.cores.sched.annotations import NO_NODES, NO_ROOM
from flux_trio.editions.explain_requests import Holder, Place
from flux_trio.policies import Job, Schedule, State, earliest_start

NAMED_MAX: Final = 8
"""Jobs that an answer names, at most: those ahead, and those that hold resources."""

NO_REQUEST: Final = "the scheduler has no request for it"
IN_TURN: Final = "jobs ahead of it come first"


def explain(
    schedule: Schedule, policy: str, jobid: int, planned: float | None, now: float
) -> Place:
    """Return where job `jobid` stands; `planned` is when the policy means to start it."""
    job = schedule.state.queue.get(jobid)
    if job is None:
        return Place(jobid, policy, 0, len(schedule.state.queue), NO_REQUEST)
    lane = schedule.lane_of(job)
    place = lane.queue.place(job)
    reason = _reason(schedule.state, job)
    if planned is None and place == 0:
        planned = earliest_start(schedule.state, job.shape, now)
    start = None if planned is None or planned == math.inf else planned
    ahead = [each.id for each in lane.queue.places(max(0, place - NAMED_MAX), place)]
    holders = _holders(schedule.state, job) if reason == NO_ROOM else []
    return Place(jobid, policy, place + 1, len(lane.queue), reason, ahead, holders, start)


def _reason(state: State, job: Job) -> str:
    if state.pool.room_when_idle(job.shape, up_only=True) < job.shape.count:
        return NO_NODES
    return NO_ROOM if state.pool.find(job.shape) is None else IN_TURN


def _holders(state: State, job: Job) -> list[Holder]:
    """Return the first jobs to end among those on ranks that the job could use."""
    ranks = state.pool.candidates(job.shape.constraint) & state.pool.up
    found: list[Holder] = []
    for grant in state.grants.by_end():
        if len(found) == NAMED_MAX:
            break
        if grant.allocation.ranks & ranks:
            found.append(Holder(grant.id, grant.end if grant.end < math.inf else None))
    return found
