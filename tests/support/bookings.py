"""Who held which resources when, by the eventlogs of jobs and their R; and what was held twice.

It knows nothing of a scheduler or a policy, so that it can say the same of any of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from flux_trio.formats import ResourceSet

Events = Sequence[Mapping[str, Any]]
"""The events of a job (RFC 18), in order."""
Core = tuple[int, str]
"""A rank and the number of a core."""

ONCE: Final = ("alloc", "start", "finish", "free", "clean")


class Held(NamedTuple):
    """A core that a job held, from its alloc event on."""

    begin: float
    end: float
    jobid: int


def held_cores(
    jobid: int, events: Events, r: Any, kept: Mapping[tuple[int, int], float]
) -> dict[Core, Held]:
    """Return what a job held, each core until its free event, or longer.

    `kept` has by job and rank until when it had to be kept, such as for housekeeping.
    """
    begin = _time_of("alloc", events)
    if begin is None or r is None:
        return {}
    end = _time_of("free", events) or math.inf
    resources = ResourceSet.parse(r, own_widths=True)
    found = {}
    for rank in resources.ranks:
        until = max(end, kept.get((jobid, rank), end))
        for core in resources.cores(rank):
            found[rank, str(core)] = Held(begin, until, jobid)
    return found


def booked_twice(holds: Iterable[Mapping[Core, Held]]) -> list[str]:
    """Return what two jobs held at one time, in words."""
    by_core: dict[Core, list[Held]] = {}
    for cores in holds:
        for core, held in cores.items():
            by_core.setdefault(core, []).append(held)
    found = []
    for (rank, number), all_held in sorted(by_core.items()):
        last = Held(-math.inf, -math.inf, 0)
        for held in sorted(all_held):
            if held.begin < last.end:
                when = f"at {held.begin:.6f} until {last.end:.6f}"
                found.append(f"rank{rank}/core{number}: jobs {last.jobid} and {held.jobid}, {when}")
            last = held if held.end > last.end else last
    return found


def wrong_lives(jobs: Mapping[int, Events]) -> list[str]:
    """Return the jobs that are not over, or to which happened twice what happens once, in words."""
    found = []
    for jobid, events in sorted(jobs.items()):
        names = [each["name"] for each in events]
        if names[-1] != "clean":
            found.append(f"job {jobid} is not over: {' '.join(names)}")
        found += [f"job {jobid}: {names.count(n)} times {n}" for n in ONCE if names.count(n) > 1]
    return found


def _time_of(name: str, events: Events) -> float | None:
    return next((float(each["timestamp"]) for each in events if each["name"] == name), None)
