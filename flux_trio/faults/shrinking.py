"""Makes a plan that breaks a property smaller, as long as it still breaks the same one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from flux_trio.faults.plan import Plan
from flux_trio.faults.running import run_plan
from flux_trio.faults.workload import Do, JobPlan

RUNS_MAX: Final = 150


def shrink(plan: Plan, broken: str, is_broken: Callable[[Plan], bool] | None = None) -> Plan:
    """Return a smaller plan that breaks the property `broken` too; runs RUNS_MAX plans at most."""

    def breaks(tried: Plan) -> bool:
        return broken in run_plan(tried).broken

    check = is_broken or breaks
    left = RUNS_MAX
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for tried in _smaller(plan):
            left -= 1
            if check(tried):
                plan, is_smaller = tried, True
                break
            if not left:
                return plan
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with less of something, those that lose most first."""
    size = max(len(plan.jobs), len(plan.actions), len(plan.faults))
    while size:
        yield from _without(plan, "faults", size)
        yield from _without(plan, "jobs", size)
        yield from _without(plan, "actions", size)
        size //= 2
    replace = msgspec.structs.replace
    if plan.late:
        yield replace(plan, late=0.0)
    if plan.limit:
        yield replace(plan, limit=0)
    if plan.policy != "fifo":
        yield replace(plan, policy="fifo")
    for place, job in enumerate(plan.jobs):
        plain = JobPlan(urgency=job.urgency or 16)
        if job != plain:
            yield replace(plan, jobs=(*plan.jobs[:place], plain, *plan.jobs[place + 1 :]))


def _without(plan: Plan, what: str, size: int) -> Iterator[Plan]:
    """The plan without `size` of its jobs, actions or faults, wherever they begin."""
    values = getattr(plan, what)
    if size > len(values) or not values:
        return
    for first in range(0, len(values), size):
        rest = (*values[:first], *values[first + size :])
        if what == "jobs":
            gone = range(first, min(first + size, len(values)))
            yield msgspec.structs.replace(
                plan, jobs=rest, actions=tuple(_renumbered(plan.actions, gone))
            )
        else:
            yield msgspec.structs.replace(plan, **{what: rest})


def _renumbered(actions: tuple[Do, ...], gone: range) -> Iterator[Do]:
    """The actions without those on jobs that are gone; the others name the jobs' new places."""
    for each in actions:
        if each.what not in ("cancel", "urgency"):
            yield each
        elif each.job not in gone:
            nbefore = sum(place < each.job for place in gone)
            yield msgspec.structs.replace(each, job=each.job - nbefore)
