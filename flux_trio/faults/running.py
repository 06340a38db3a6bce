"""Plays a plan: first with its faults, then everything is put right and must come to rest."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from flux_trio.config import Config, ExecConfig, SchedConfig
from flux_trio.faults.moments import Moments
from flux_trio.faults.plan import Do, Fault, Plan
from flux_trio.faults.user import Owner
from flux_trio.faults.world import CoresWorld
from flux_trio.formats import ResourceSet, format_fluid
from flux_trio.judge import Clause, Monitor, Violation, load_clauses
from flux_trio.judge.rules import ALL_RULES
from flux_trio.protocols import JobEvent
from flux_trio.trace import Kind, Record, Sink

STEPS_MAX: Final = 50_000  # a world of 20 jobs takes about 1,000
OWNER: Final = "owner"
LONG_TEXT: Final = "6.response.4"  # it recommends short error texts; longer ones are wanted here


@dataclass(frozen=True)
class Outcome:
    """What became of a plan: `problems` has each property that was broken, and how."""

    plan: Plan
    problems: tuple[str, ...]
    violations: tuple[Violation, ...] = ()
    struck: tuple[Fault, ...] = ()
    nsteps: int = 0
    log: tuple[tuple[float, str, int, str], ...] = field(default=(), repr=False)

    @property
    def broken(self) -> frozenset[str]:
        """The properties that were broken: clauses by id, the others by their first word."""
        return frozenset(problem.partition(":")[0] for problem in self.problems)


def run_plan(plan: Plan, sinks: Iterable[Sink] = ()) -> Outcome:
    """Play `plan` and check its properties; `sinks` get every record of the trace."""
    monitor = Monitor(ALL_RULES, _clauses(), is_simulated=True)
    played = play(plan, [*sinks, monitor.observe])
    world, moments = played.world, played.moments
    problems = [] if played.is_at_rest else [f"rest: there is none after {world.nsteps} steps"]
    if played.is_at_rest:
        monitor.finish()
        problems += _left_over(played)
    violations = tuple(v for v in monitor.violations if v.clause != LONG_TEXT)
    problems += [f"error: {each}" for each in world.errors]
    problems += [f"{each.clause}: record {each.record.n}: {each.text}" for each in violations]
    return Outcome(
        plan, tuple(problems), violations, tuple(moments.struck), world.nsteps, tuple(world.log)
    )


@dataclass(frozen=True)
class Played:
    """A world after its plan."""

    world: CoresWorld
    moments: Moments
    owner: Owner
    active: frozenset[int]
    """Jobs that are not INACTIVE."""
    is_at_rest: bool


def play(plan: Plan, sinks: Iterable[Sink] = ()) -> Played:
    """Play `plan` without a judge."""
    jobs = _Jobs()
    inventory, sinks = _inventory(plan), [*sinks, jobs.observe]
    world = CoresWorld(plan.seed, _config(plan), inventory, late=plan.late, sinks=sinks)
    moments = Moments(plan, world)
    world.trace.add_sink(moments.observe)
    for name in world.modules:
        world.load(name)
    owner = Owner(plan.jobs, plan.actions, {})
    world.start(world.add(OWNER, owner))
    is_at_rest = _run(world, moments)
    if is_at_rest:
        world.trace.remove_sink(moments.observe)
        put_right(plan, world, sorted(jobs.active))
        is_at_rest = _run(world, None)
    return Played(world, moments, owner, frozenset(jobs.active), is_at_rest)


class _Jobs:
    """The jobs that have a submit event and no clean event."""

    def __init__(self) -> None:
        self.active: set[int] = set()

    def observe(self, record: Record) -> None:
        """Take the next record; a Sink."""
        if record.kind == Kind.EVENT and record.data is not None:
            match record.data["name"]:
                case JobEvent.SUBMIT:
                    self.active.add(record.data["id"])
                case JobEvent.CLEAN:
                    self.active.discard(record.data["id"])


def put_right(plan: Plan, world: CoresWorld, active: list[int]) -> None:
    """Load what is not there; bring nodes back, start the queue, let the `active` jobs run."""
    for name in world.modules:
        world.load(name)
    ranks = {each.rank for each in plan.actions}
    todo = [Do(0.0, "queue-start")]
    todo += [Do(0.0, what, rank=rank) for rank in sorted(ranks) for what in ("up", "undrain")]
    todo += [Do(0.0, "urgency", job=place) for place in range(len(active))]
    last = Owner((), tuple(todo), dict(enumerate(active)))
    world.start(world.add("last", last))


def _run(world: CoresWorld, moments: Moments | None) -> bool:
    """Return True at rest, False after STEPS_MAX; without `moments` there are no more faults."""
    while True:
        if moments is not None:
            moments.step()
        if not world.step():
            return True
        if world.nsteps >= STEPS_MAX:
            return False


def _left_over(played: Played) -> list[str]:
    submitted = sorted(played.active.intersection(played.owner.ids.values()))
    problems = [f"inactive: {format_fluid(each, 'f58')} is active at rest" for each in submitted]
    problems += [f"answered: request {tag} of the owner is not" for tag in played.owner.waiting]
    return problems


@functools.cache
def _clauses() -> dict[str, Clause]:
    return load_clauses()


def _config(plan: Plan) -> Config:
    sched = SchedConfig(policy=plan.policy)
    if plan.limit:
        sched = SchedConfig(policy=plan.policy, mode="limited", limit=plan.limit)
    return Config(exec=ExecConfig(simulate=True), sched=sched)


def _inventory(plan: Plan) -> ResourceSet:
    cores = (1 << plan.cores) - 1
    return ResourceSet.build(((rank, cores, 0) for rank in range(plan.nnodes)), "node{}".format)
