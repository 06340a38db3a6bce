"""Makes a plan that breaks a property smaller, as long as it still breaks the same one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from flux_trio.faults.catalogue import When, Which
from flux_trio.faults.plan import Plan
from flux_trio.faults.running import run_plan
from flux_trio.faults.workload import Do, JobPlan

RUNS_MAX: Final = 150
_MOMENTS: Final = ("when", "which", "until")

StructT = TypeVar("StructT", bound=msgspec.Struct)


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
    if plan.queues:
        yield _without_queues(plan)
    for place, job in enumerate(plan.jobs):
        plain = JobPlan(urgency=job.urgency or 16)
        if job != plain:
            yield replace(plan, jobs=(*plan.jobs[:place], plain, *plan.jobs[place + 1 :]))
    for place, fault in enumerate(plan.faults):
        for simpler in _simpler(fault):
            yield replace(plan, faults=(*plan.faults[:place], simpler, *plan.faults[place + 1 :]))


def _without_queues(plan: Plan) -> Plan:
    """The plan with the anonymous queue alone."""
    replace = msgspec.structs.replace
    jobs = tuple(replace(each, queue=None) for each in plan.jobs)
    actions = tuple(replace(each, queue=None) for each in plan.actions)
    return replace(plan, queues=0, jobs=jobs, actions=actions)


def _simpler(value: StructT) -> Iterator[StructT]:
    """Faults with a shorter time, a lower count, an earlier moment or less to strike."""
    for name in value.__struct_fields__:
        for each in _less(getattr(value, name)):
            yield msgspec.structs.replace(value, **{name: each})


def _less(value: Any) -> Iterator[Any]:
    """Values that are nearer to nothing, the least first; none for a text or a truth value."""
    match value:
        case bool() | str():
            return
        case int() if value > 1:
            yield 1
            if value > 3:
                yield value // 2
        case float() if value:
            yield 0.0
            if abs(value) > 1:
                yield math.copysign(1.0, value)
        case tuple() if len(value) > 1:
            yield value[:1]
            yield value[1:]
        case When() | Which():
            yield from _simpler(value)


def _without(plan: Plan, what: str, size: int) -> Iterator[Plan]:
    """The plan without `size` of its jobs, actions or faults, wherever they begin."""
    values = getattr(plan, what)
    if size > len(values) or not values:
        return
    for first in range(0, len(values), size):
        rest = (*values[:first], *values[first + size :])
        if what == "jobs":
            gone = range(first, min(first + size, len(values)))
            smaller = msgspec.structs.replace(
                plan, jobs=rest, actions=tuple(_renumbered(plan.actions, gone))
            )
            yield smaller
            earlier = _earlier(smaller, len(rest) / len(values))
            if earlier != smaller:
                yield earlier
        else:
            yield msgspec.structs.replace(plan, **{what: rest})


def _earlier(plan: Plan, share: float) -> Plan:
    """The plan whose moments come earlier: a world of fewer jobs has fewer steps and messages."""
    return msgspec.structs.replace(
        plan,
        actions=tuple(_moved(each, share) for each in plan.actions),
        faults=tuple(_moved(each, share) for each in plan.faults),
    )


def _moved(value: StructT, share: float) -> StructT:
    """The value with `share` of the numbers of steps and messages in its moments."""
    changed: dict[str, Any] = {}
    for name in _MOMENTS:
        match getattr(value, name, None):
            case int() as step:
                changed[name] = max(1, round(step * share))
            case When() | Which() as sought:
                nth = max(1, round(sought.nth * share))
                changed[name] = msgspec.structs.replace(sought, nth=nth)
    return msgspec.structs.replace(value, **changed) if changed else value


def _renumbered(actions: tuple[Do, ...], gone: range) -> Iterator[Do]:
    """The actions without those on jobs that are gone; the others name the jobs' new places."""
    for each in actions:
        if each.what not in ("cancel", "urgency"):
            yield each
        elif each.job not in gone:
            nbefore = sum(place < each.job for place in gone)
            yield msgspec.structs.replace(each, job=each.job - nbefore)
