"""Plays a plan: first with its faults, then everything is put right and must come to rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Self

from flux_trio.config import Config
from flux_trio.cores.pages import small_pages
from flux_trio.formats import format_fluid
from flux_trio.judge import Violation
from flux_trio.lab.catalogue import Holds
from flux_trio.lab.plans.files import check_plan
from flux_trio.lab.plans.plan import Plan, own_of, reloadable_of
from flux_trio.lab.properties.property import Property
from flux_trio.lab.properties.world_judge import WorldJudge, described, violator
from flux_trio.lab.stories.fault_moments import Moments
from flux_trio.lab.stories.outcome import ERROR, Outcome, problems_at_rest, property_of
from flux_trio.lab.stories.owner import Owner
from flux_trio.lab.stories.putting_right import (
    URGENCY,
    lacks_a_module,
    load_all_modules_again,
    owner_who_puts_right,
    owner_who_releases,
)
from flux_trio.lab.stories.setting import config_of, prompts_of, surroundings_of
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.jobs import Jobs
from flux_trio.lab.world.parties import OWNER
from flux_trio.lab.world.stack import StackWorld
from flux_trio.lab.world.waiting import Waiting
from flux_trio.process.collector import rare_collections
from flux_trio.protocols import JobEvent
from flux_trio.trace import Kind, Record, Sink

STEPS_MAX: Final = 50_000  # a world of 20 jobs takes about 1,000
RECORDS_MAX: Final = (200_000, 2_000)
"""A world with more records than this, and so many more for each job, will not come to rest: a job
takes about 80. A plugin that lets its own jobs be asked about again and again needs hardly a step
for thousands."""
FAULTS_STEPS_MAX: Final = 5_000
"""The number of steps after which everything is put right, at rest or not: if a module has left by
itself, the owner repeats its requests for ever."""
QUIET_S: Final = 3_600.0
WAITING_S: Final = 86_400.0
"""Plugins may act every few seconds for ever, and job-exec asks for an R that is damaged. Beside
them a world counts as at rest when no job has had an event other than `priority` for QUIET_S
seconds, or for WAITING_S seconds if jobs wait after everything was put right."""


def run_plan(
    plan: Plan, sinks: Iterable[Sink] = (), *, properties: Iterable[Property] = ()
) -> Outcome:
    """Play `plan` and check its properties; `sinks` get every record of the trace.

    Raises FormatError for a plan that was made by hand with wrong values.
    """
    with rare_collections(), PlanRun(plan, sinks, properties, judge=WorldJudge()) as plan_run:
        is_at_rest = plan_run.play()
        return plan_run.outcome(is_at_rest=is_at_rest)


def play(plan: Plan, sinks: Iterable[Sink] = ()) -> PlanRun:
    """Play `plan` without a judge."""
    with PlanRun(plan, sinks) as plan_run:
        plan_run.play()
        return plan_run


class PlanRun:
    """A plan that is played: its world, the owner who submits its jobs, and its faults.

    `judge` gets the records; without one nothing is judged, and there is no outcome. The faults
    strike at their moments until `put_right`. Raises FormatError for a plan with wrong values. A
    run holds a store, and at depth stack Trio: `with PlanRun(...) as plan_run` closes it.
    """

    def __init__(
        self,
        plan: Plan,
        sinks: Iterable[Sink] = (),
        properties: Iterable[Property] = (),
        *,
        judge: WorldJudge | None = None,
    ) -> None:
        check_plan(plan)
        self.plan = plan
        self.trace: list[Record] = []
        self.broken: dict[str, str] = {}  # by property: what is wrong
        self._properties = tuple(properties)
        self._at_pause = [each for each in self._properties if each.looks_at == "pause"]
        self._after_step = [each for each in self._properties if each.looks_at == "step"]
        self._jobs = Jobs()
        self._waiting = Waiting()
        sinks = [self.trace.append, *sinks, self._jobs.observe]
        self.judge = judge
        if judge is not None:
            sinks.append(judge.observe)
        self._went_on = 0.0  # when a job did
        self._longest_s = max((job.run for job in plan.jobs), default=0.0)
        has_plugins = bool(plan.plugins) and plan.depth == "stack"
        may_ask = any(each.holds is Holds.NO_ERROR for each in plan.faults)
        self._may_act_for_ever = has_plugins or may_ask
        if self._may_act_for_ever:
            sinks.append(self._note_event)
        watched = [each for each in self._properties if each.looks_at == "records"]
        self.world = self.make_world(config_of(plan), sinks)
        self._watchers = {each: each.watch(self.world) for each in watched}
        for watcher in self._watchers.values():
            self.world.trace.add_sink(watcher.observe)
        self.world.records_max = RECORDS_MAX[0] + RECORDS_MAX[1] * len(plan.jobs)
        self.world.began = self._begin_life
        self.world.pauses = self._pause
        self.moments: Moments | None = Moments(plan.faults, self.world, prompts_of(plan))
        self.struck = self.moments.struck
        self._prompted = self.moments.prompted
        self.note = self.moments.note
        with small_pages(plan.pages):
            self.world.boot()
        self.owner = self.make_owner()
        self._connect(OWNER, self.owner)

    def make_world(self, config: Config, sinks: Iterable[Sink]) -> CoresWorld:
        """Return the world in which the plan is played; `sinks` get the records of its trace."""
        plan = self.plan
        return _WORLDS[plan.depth](
            plan.seed, config, surroundings_of(plan), late=plan.late, sinks=sinks
        )

    def make_owner(self) -> Owner:
        """Return the client that submits the jobs of the plan and makes its requests."""
        return Owner(
            self.plan.jobs, self.plan.actions, {}, reloadable_of(self.plan), own_of(self.plan)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with small_pages(self.plan.pages):
            self.world.close()

    @property
    def active(self) -> frozenset[int]:
        """The ids of the jobs that are not INACTIVE."""
        return frozenset(self._jobs.active)

    def step(self) -> bool:
        """Let one thing happen, a fault before it; False if nothing is left to happen."""
        if self.moments is not None and not self.world.is_in_turn:
            self.moments.step()
        with small_pages(self.plan.pages):
            if not self.world.step():
                return False
        for each in self._after_step:
            self._check(each, self.world)
        return True

    def run(self, steps_max: int = STEPS_MAX) -> bool:
        """Go on until nothing is left to happen; return whether that came.

        It does not if the world has made `steps_max` steps or has too many records.
        """
        self._went_on = self.world.passed
        while self.step():
            if self.world.nsteps >= steps_max or self.world.has_too_many_records:
                return False
            if self._may_act_for_ever and self._is_quiet():
                return True
        return True

    def _is_quiet(self) -> bool:
        may_wait = self.moments is None and self._jobs.active
        quiet_s = self.world.passed - self._went_on - self._longest_s
        return quiet_s > (WAITING_S if may_wait else QUIET_S)

    def _note_event(self, record: Record) -> None:
        if record.kind == Kind.EVENT and (record.data or {})["name"] != JobEvent.PRIORITY:
            self._went_on = self.world.passed

    def play(self) -> bool:
        """Run, put everything right and run again; return whether all came to rest."""
        was_at_rest = self._run_with_faults()
        self.put_right()
        if not was_at_rest:
            self.run()  # the owner has still asked for something, and may take away a node
        self.let_go_on()
        is_at_rest = self.run()
        if lacks_a_module(self.world):
            with small_pages(self.plan.pages):
                self.world.boot()
            is_at_rest = self.run()
        return is_at_rest and self._release_jobs_that_came_late()

    def _run_with_faults(self) -> bool:
        """Run until nothing is left to happen, with the messages that were held to the end."""
        while is_at_rest := self.run(FAULTS_STEPS_MAX):
            if not self.world.release_all():
                break
        return is_at_rest

    def put_right(self) -> None:
        """End the faults, and load the modules that are away or lie, so that the world can come to
        rest.
        """
        if self.judge is not None:
            self.judge.note_debts_of_liars(self.world)
        if self.moments is not None:
            self.moments.end()
            self.moments = None
        self.world.trace.add_sink(self._waiting.observe)
        load_all_modules_again(self.world, self.struck)

    def let_go_on(self) -> None:
        """Connect a client that brings nodes back, and lets queues and jobs go on."""
        active = self._jobs.unfinished(self.world.disk.store)
        self._connect("last", owner_who_puts_right(self.plan, active))

    def _release_jobs_that_came_late(self) -> bool:
        """Let jobs go on that had not come when all was put right; return whether all rests."""
        asked: set[int] = set()
        while late := self._late_jobs(asked):
            asked.update(late)
            name = self.world.router.unique_name("last")
            self._connect(name, owner_who_releases(late))
            if not self.run():
                return False
        return True

    def _late_jobs(self, asked: set[int]) -> list[int]:
        """Return the active jobs, not `asked` for, that had not come when all was put right."""
        urgencies = self._jobs.urgencies
        jobs = self._jobs.unfinished(self.world.disk.store)
        return [each for each in jobs if each not in asked and urgencies.get(each) != URGENCY]

    def _connect(self, name: str, owner: Owner) -> None:
        """Let `owner` connect: if the instance is not there, when its next life has begun."""
        self.world.when_up(lambda: self.world.start(self.world.add(name, owner)))

    def outcome(self, *, is_at_rest: bool) -> Outcome:
        """Check the properties of the whole, and return what became of the plan."""
        assert self.judge is not None  # an outcome is a judgement
        problems = [*self._problems_at_the_end(is_at_rest=is_at_rest), *self._broken_properties()]
        problems += [f"{ERROR}: {each}" for each in self.world.errors]
        violations = self.judge.violations
        problems += [described(each) for each in violations]
        excused = self._excused(problems, violations)
        return self._outcome_with(
            [each for each in problems if each not in excused],
            (*violations, *self.judge.owed),
            excused,
        )

    def _problems_at_the_end(self, *, is_at_rest: bool) -> list[str]:
        """Return how the world breaks our properties at rest, or that it does not come to rest."""
        world, judge = self.world, self.judge
        if not is_at_rest:
            records = world.trace.nrecords
            return [f"rest: there is none after {world.nsteps} steps and {records} records"]
        assert judge is not None
        judge.finish()
        active = self._jobs.unfinished(world.disk.store)
        may_wait = self._waiting.rightly(active, world.disk.store)
        problems = list(problems_at_rest(self.owner, active, may_wait, world.disk.store))
        for each in self._properties:
            if each.looks_at == "rest":
                self._check(each, world)
        for watcher in self._watchers.values():
            watcher.rest()
        return problems

    def _broken_properties(self) -> list[str]:
        """Return what is wrong with each property; one over the trace is not judged of a liar."""
        for each in self._properties:
            if each.looks_at == "trace" and self.world.liars.keys().isdisjoint(each.modules):
                self._check(each, self.trace)
        found = {each.name: w.problem for each, w in self._watchers.items() if w.problem}
        return [f"{name}: {text}" for name, text in (self.broken | found).items()]

    def _excused(self, problems: list[str], violations: list[Violation]) -> list[str]:
        """Return what the faults excuse: a liar's clauses, or all but errors of cores."""
        if any(fault.holds is Holds.NO_ERROR for fault in self.struck):
            return [each for each in problems if property_of(each) != ERROR]
        assert self.judge is not None
        lies = [described(each) for each in violations if violator(each) in self.world.liars]
        return [*lies, *map(described, self.judge.owed)]

    def _outcome_with(
        self,
        problems: Iterable[str],
        violations: tuple[Violation, ...] = (),
        excused: Iterable[str] = (),
    ) -> Outcome:
        return Outcome(
            self.plan,
            tuple(problems),
            violations,
            tuple(self.struck),
            self.world.nsteps,
            tuple(self.world.logged),
            tuple(excused),
            tuple(
                self.plan.actions[place - len(self.plan.jobs)]
                for place in prompts_of(self.plan)
                if place not in self._prompted
            ),
            self.trace,
        )

    def _check(self, check: Property, seen: object) -> None:
        if check.name not in self.broken and (text := check(seen)):
            self.broken[check.name] = text

    def _pause(self) -> None:
        """Nobody has anything to do before time passes."""
        is_calm = self.world.is_calm
        if is_calm and self.judge is not None:
            self.judge.pause(self.world)
        for each in self._at_pause:
            if self._is_asked(each, is_calm=is_calm):
                self._check(each, self.world)
        for each, watcher in self._watchers.items():
            if self._is_asked(each, is_calm=is_calm):
                watcher.pause()

    def _is_asked(self, about: Property, *, is_calm: bool) -> bool:
        return is_calm or (bool(about.modules) and self.world.are_calm(about.modules))

    def _begin_life(self) -> None:
        """The instance begins again from what is stored."""
        lost = self._jobs.read(self.world.disk.store) & set(self.owner.ids.values())
        for jobid in sorted(lost):
            text = f"job {format_fluid(jobid, 'f58')} was accepted and is not stored"
            self.broken.setdefault("kept", text)


_WORLDS: Final = {"cores": CoresWorld, "stack": StackWorld}
