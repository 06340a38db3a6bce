"""Makes a plan that breaks a property smaller, as long as it still breaks the same one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from flux_trio.config import is_policy_of_file
from flux_trio.lab.catalogue import SentMessage, When
from flux_trio.lab.plans.checks import on_machine
from flux_trio.lab.plans.files import can_be_played
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.workload import JOB_ACTIONS, JobPlan, OwnerRequest
from flux_trio.lab.stories.running import run_plan

RUNS_MAX: Final = 150
SECONDS_MAX: Final = 60.0
"""The most seconds of a search for a smaller plan: a plan with an endless loop takes several by
itself."""
COARSE: Final = 4
"""The size of the groups of faults, jobs or requests that are left out first, before single ones
are."""
SEEDS: Final = 4
"""The number of other seeds with which a plan that stays large is tried."""
_MOMENTS: Final = ("when", "which", "until")

StructT = TypeVar("StructT", bound=msgspec.Struct)

Edit: TypeAlias = Callable[[Plan], Iterator[Plan]]
"""A function that yields smaller plans, each with less of one thing; the smallest comes first."""


class Shrunk(NamedTuple):
    """The smallest plan that was found, and what ended the search before all were tried."""

    plan: Plan
    limit: str
    """The limit that was reached, such as "150 plans were tried"; "" if no smaller plan is left."""


def shrink(plan: Plan, broken: str, is_broken: Callable[[Plan], bool] | None = None) -> Shrunk:
    """Return a smaller plan that breaks the property `broken` too.

    Runs at most RUNS_MAX plans, and begins none after SECONDS_MAX. The smaller plan may have
    another seed: with less in it, another order of events may be needed.
    """

    def breaks(tried: Plan) -> bool:
        return broken in run_plan(tried).broken

    tries = _Tries(is_broken or breaks)
    plan = _thinned(plan, tries, least=COARSE)
    if _is_large(plan):
        plan = _thinned(plan, tries, least=COARSE, nseeds=SEEDS)
    before = None
    while plan != before:
        before = plan
        thick = None
        while plan != thick:
            thick = plan
            plan = _thinned(plan, tries)
            plan = _edited(plan, _plainings(plan), tries)
        plan = _edited(plan, _edits(plan), tries)
    return Shrunk(plan, tries.limit)


class _Tries:
    """Plays RUNS_MAX plans at most, none after SECONDS_MAX, and no plan twice."""

    def __init__(self, check: Callable[[Plan], bool]) -> None:
        self._check = check
        self._left = RUNS_MAX
        self._end = time.monotonic() + SECONDS_MAX
        self._tried: set[bytes] = set()
        self.limit = ""

    def first(self, plans: Iterable[Plan]) -> Plan | None:
        """Return the first plan that breaks the property; None if there is none."""
        for tried in filter(can_be_played, plans):
            key = msgspec.json.encode(tried)
            if key in self._tried:
                continue
            self._tried.add(key)
            if not self._left:
                self.limit = f"{RUNS_MAX} plans were tried"
            elif time.monotonic() > self._end:
                self.limit = f"{SECONDS_MAX:.0f} seconds were over"
            if self.limit:
                return None
            self._left -= 1
            if self._check(tried):
                return tried
        return None


def _is_large(plan: Plan) -> bool:
    return max(len(plan.faults), len(plan.jobs), len(plan.actions)) >= COARSE


def _thinned(plan: Plan, tries: _Tries, *, least: int = 1, nseeds: int = 1) -> Plan:
    """Return the plan without faults, jobs and requests that it does not need.

    They are left out in groups, which get smaller, down to the size `least`. After a group that was
    not needed the next one of its size is tried: most of the larger ones that are needed would be
    needed again. With more than one seed, what is left is tried in other orders, too.
    """
    size = max(len(plan.faults), len(plan.jobs), len(plan.actions))
    while size >= least:
        for what in ("faults", "jobs", "actions"):
            first = 0
            while first < len(getattr(plan, what)) >= size:
                thinner = tries.first(_in_orders(_without(plan, what, first, size), nseeds))
                if thinner is None:
                    first += size
                else:
                    plan = thinner  # the next group has moved to this place
        size //= 2
    return plan


def _in_orders(plans: Iterator[Plan], nseeds: int) -> Iterator[Plan]:
    """Yield the plans, then the first of them with other seeds."""
    first = next(plans)
    yield from chain((first,), plans)
    for seed in range(first.seed + 1, first.seed + nseeds):
        yield msgspec.structs.replace(first, seed=seed)


def _edited(plan: Plan, edits: Iterable[Edit], tries: _Tries) -> Plan:
    """Return the plan after each edit that leaves the property broken."""
    for edit in edits:
        plan = tries.first(edit(plan)) or plan
    return plan


def _edits(plan: Plan) -> Iterator[Edit]:
    """Changes of one value each, of the jobs, the requests and the machine; the plan has as many
    jobs and requests afterwards.
    """
    yield _begun_at_once
    for place in range(len(plan.jobs)):
        for name in JobPlan.__struct_fields__:
            if name != "urgency":
                yield partial(_with_less, "jobs", place, name)
    for place in range(len(plan.actions)):
        yield partial(_with_less, "actions", place, "at")
    for name in ("nnodes", "cores"):
        yield partial(_of_machine, name)


def _begun_at_once(plan: Plan) -> Iterator[Plan]:
    """The plan without the time before its first job."""
    first = min((each.at for each in plan.jobs), default=0.0)
    if first:
        replace = msgspec.structs.replace
        jobs = tuple(replace(each, at=round(each.at - first, 1)) for each in plan.jobs)
        actions = tuple(
            replace(each, at=round(max(each.at - first, 0.0), 1)) for each in plan.actions
        )
        yield replace(plan, jobs=jobs, actions=actions)


def _with_less(what: str, place: int, name: str, plan: Plan) -> Iterator[Plan]:
    """The plan with less in the field `name` of one of its jobs or requests."""
    values = getattr(plan, what)
    for each in _nearer_to_plain(name, getattr(values[place], name)):
        changed = msgspec.structs.replace(values[place], **{name: each})
        yield _with(plan, what, place, changed)


def _with(plan: Plan, what: str, place: int, changed: object) -> Plan:
    """The plan with `changed` in the place of one of its jobs, requests or faults."""
    values = getattr(plan, what)
    return msgspec.structs.replace(plan, **{what: (*values[:place], changed, *values[place + 1 :])})


def _nearer_to_plain(name: str, value: Any) -> Iterator[Any]:
    """Values of a field that are nearer to that of a plain job, the nearest first."""
    plain = getattr(JobPlan(), name)
    if value != plain:
        yield plain
    if name == "at":
        for each in (round(value / 10, 1), round(value / 2, 1)):
            if plain < each < value:
                yield each


def _of_machine(name: str, plan: Plan) -> Iterator[Plan]:
    """The plan with fewer nodes, or fewer cores on each."""
    for each in _less(getattr(plan, name)):
        yield on_machine(plan, **{name: each})


def _plainings(plan: Plan) -> Iterator[Edit]:
    """Edits by which the machine, all jobs, a job, a request or a fault get plainer."""
    yield from (_of_machine_plain, _with_plain_jobs)
    for place in range(len(plan.jobs)):
        yield partial(_with_plain_job, place)
    for place in range(len(plan.actions)):
        yield partial(_with_simpler_moment, place)
    for place in range(len(plan.faults)):
        yield partial(_with_simpler_fault, place)


def _of_machine_plain(plan: Plan) -> Iterator[Plan]:
    replace = msgspec.structs.replace
    if plan.late:
        yield replace(plan, late=0.0)
    if plan.limit:
        yield replace(plan, limit=0)
    if plan.policy != "fifo" and not is_policy_of_file(plan.policy):
        yield replace(plan, policy="fifo")
    if plan.builtins:
        yield replace(plan, builtins=())
    if plan.pages:
        yield replace(plan, pages=0)
    if plan.queues:
        yield _without_queues(plan)


def _with_plain_jobs(plan: Plan) -> Iterator[Plan]:
    yield msgspec.structs.replace(plan, jobs=tuple(map(_plain, plan.jobs)))


def _with_plain_job(place: int, plan: Plan) -> Iterator[Plan]:
    job = plan.jobs[place]
    if job != (plain := _plain(job)):
        yield _with(plan, "jobs", place, plain)


def _plain(job: JobPlan) -> JobPlan:
    return JobPlan(urgency=job.urgency or 16)


def _with_simpler_moment(place: int, plan: Plan) -> Iterator[Plan]:
    """The plan with a request at its time, or at an earlier one of the messages that it waits for.

    Those jobs have to stay whose messages are counted.
    """
    request = plan.actions[place]
    if request.when is None:
        return
    for when in chain((None,), _simpler(request.when)):
        yield _with(plan, "actions", place, msgspec.structs.replace(request, when=when))


def _with_simpler_fault(place: int, plan: Plan) -> Iterator[Plan]:
    fault = plan.faults[place]
    for simpler in chain(fault.simpler_kinds(), _simpler(fault)):
        yield _with(plan, "faults", place, simpler)


def _without_queues(plan: Plan) -> Plan:
    """The plan with the anonymous queue alone."""
    replace = msgspec.structs.replace
    jobs = tuple(replace(each, queue=None) for each in plan.jobs)
    actions = tuple(replace(each, queue=None) for each in plan.actions if each.what != "move")
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
        case When() | SentMessage():
            yield from _simpler(value)


def _without(plan: Plan, what: str, first: int, size: int) -> Iterator[Plan]:
    """The plan without `size` of its jobs, actions or faults, from the place `first` on."""
    values = getattr(plan, what)
    rest = (*values[:first], *values[first + size :])
    smaller = msgspec.structs.replace(plan, **{what: rest})
    if what != "jobs":
        yield smaller
        return
    gone = range(first, min(first + size, len(values)))
    smaller = msgspec.structs.replace(
        smaller,
        jobs=tuple(_behind_another(each, gone) for each in rest),
        actions=tuple(_renumbered(plan.actions, gone)),
    )
    yield smaller
    earlier = _earlier(smaller, len(rest) / len(values))
    if earlier != smaller:
        yield earlier


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
            case When() | SentMessage() as sought:
                nth = max(1, round(sought.nth * share))
                changed[name] = msgspec.structs.replace(sought, nth=nth)
    return msgspec.structs.replace(value, **changed) if changed else value


def _behind_another(job: JobPlan, gone: range) -> JobPlan:
    """The job without the one that it waits for if that is gone, or with that one's new place."""
    if job.after is None:
        return job
    place = None if job.after in gone else job.after - sum(each < job.after for each in gone)
    return msgspec.structs.replace(job, after=place)


def _renumbered(actions: tuple[OwnerRequest, ...], gone: range) -> Iterator[OwnerRequest]:
    """The actions without those on jobs that are gone; the others name the jobs' new places."""
    for each in actions:
        if each.what not in JOB_ACTIONS:
            yield each
        elif each.job not in gone:
            nbefore = sum(place < each.job for place in gone)
            yield msgspec.structs.replace(each, job=each.job - nbefore)
