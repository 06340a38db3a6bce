"""Plays a plan: first with its faults, then everything is put right and must come to rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self

from flux_trio.config import Config, ExecConfig, JobManagerConfig, QueueTable, SchedConfig
from flux_trio.formats import EVENTLOG, Idset, ResourceSet, format_fluid, job_key
from flux_trio.judge import Violation
from flux_trio.lab.catalogue import Fault, Holds, PluginFault, When
from flux_trio.lab.plans.files import check_plan
from flux_trio.lab.plans.missed import missed
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.workload import JOB_ACTIONS, Do, JobPlan, queue_name
from flux_trio.lab.properties.lives import Lives, described, violator
from flux_trio.lab.properties.plugin_failures import loop_in, no_plugin_fails
from flux_trio.lab.properties.property import Property
from flux_trio.lab.stories.moments import Moments
from flux_trio.lab.stories.owner import Owner
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.jobs import Jobs, stored_job
from flux_trio.lab.world.machines import Surroundings
from flux_trio.lab.world.parties import OWNER
from flux_trio.lab.world.plugin_files import LOOP_S, plugin_file
from flux_trio.lab.world.stack import StackWorld
from flux_trio.lab.world.waiting import Waiting
from flux_trio.messages import topics
from flux_trio.process.collector import rare_collections
from flux_trio.protocols import Job, JobEvent, JobState
from flux_trio.protocols.hooks import STATE_TOPICS
from flux_trio.trace import Kind, Record, Sink

STEPS_MAX: Final = 50_000  # a world of 20 jobs takes about 1,000
RECORDS_MAX: Final = (200_000, 2_000)
"""A world that has more, and more for each job, does not come to rest: a job takes about 80. A
plugin that lets its own jobs be asked about again and again needs hardly a step for thousands."""
FAULTS_STEPS_MAX: Final = 5_000
"""Then everything is put right, at rest or not: if a module has left by itself, the owner asks it
for something again and again."""
QUIET_S: Final = 3_600.0
WAITING_S: Final = 86_400.0
"""Plugins may act every few seconds for ever. Beside them a world counts as at rest when no job has
had an event other than `priority` for QUIET_S seconds, or for WAITING_S seconds if jobs wait after
everything was put right."""
URGENCY: Final = 17
"""Jobs get it when everything is put right. No plan draws it: an urgency that is not new lets no
plugin be asked again."""
ERROR: Final = "error"
"""The property that no core raises."""


@dataclass(frozen=True)
class Outcome:
    """What became of a plan: `problems` has each property that was broken, and how.

    `excused` has what the plan's faults excuse, and `problems` only the rest: of a party that lies
    the clauses that it broke; if messages were lost without a disconnect, all but `error`.
    """

    plan: Plan
    problems: tuple[str, ...]
    violations: tuple[Violation, ...] = ()
    struck: tuple[Fault, ...] = ()
    nsteps: int = 0
    log: tuple[tuple[float, str, int, str], ...] = field(default=(), repr=False)
    excused: tuple[str, ...] = ()
    unprompted: tuple[Do, ...] = ()
    """The requests of the plan that were never made, since their message did not come."""

    @property
    def missed(self) -> tuple[Fault, ...]:
        """The faults of the plan that never struck, since their place did not come."""
        return missed(self.plan.faults, self.struck)

    @property
    def broken(self) -> frozenset[str]:
        """The properties that were broken: clauses by id, the others by their first word."""
        return frozenset(map(property_of, self.problems))


def property_of(problem: str) -> str:
    """Return the name of the property that is broken, the first word of `problem`."""
    return problem.partition(":")[0]


def run_plan(
    plan: Plan, sinks: Iterable[Sink] = (), *, properties: Iterable[Property] = ()
) -> Outcome:
    """Play `plan` and check its properties; `sinks` get every record of the trace.

    Raises FormatError for a plan that was made by hand with wrong values.
    """
    with rare_collections(), Game(plan, sinks, properties, lives=Lives()) as game:
        is_at_rest = game.play()
        return game.outcome(is_at_rest=is_at_rest)


def play(plan: Plan, sinks: Iterable[Sink] = ()) -> Game:
    """Play `plan` without a judge."""
    with Game(plan, sinks) as game:
        game.play()
        return game


class Game:
    """A world and those who play in it: the owner, and the faults at their moments.

    `lives` judges it; without it nothing is judged. Raises FormatError for a plan with wrong
    values. At its end the game has to be closed: `with Game(...) as game`.
    """

    def __init__(
        self,
        plan: Plan,
        sinks: Iterable[Sink] = (),
        properties: Iterable[Property] = (),
        *,
        lives: Lives | None = None,
    ) -> None:
        check_plan(plan)
        self.plan = plan
        self.trace: list[Record] = []  # if a property looks at it
        self.broken: dict[str, str] = {}  # by property: what is wrong
        self._properties = tuple(properties)
        self._at_pause = [each for each in self._properties if each.looks_at == "pause"]
        self._after_step = [each for each in self._properties if each.looks_at == "step"]
        self._jobs = Jobs()
        self._waiting = Waiting()
        sinks = [*sinks, self._jobs.observe]
        self.lives = lives
        if lives is not None:
            sinks.append(lives.observe)
        if any(each.looks_at == "trace" for each in self._properties):
            sinks.append(self.trace.append)
        self._went_on = 0.0  # when a job did
        self._longest_s = max((job.run for job in plan.jobs), default=0.0)
        self._may_act_for_ever = bool(plan.plugins) and plan.depth == "stack"
        if self._may_act_for_ever:
            sinks.append(self._note_event)
        self._loop = ""  # how a plugin was interrupted that did not return
        if plan.plugins:
            sinks.append(self._note_loop)
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
        self.world.boot()
        self.owner = self.make_owner()
        self._connect(OWNER, self.owner)

    def make_world(self, config: Config, sinks: Iterable[Sink]) -> CoresWorld:
        """Return the world of the plan; `sinks` get its records."""
        plan = self.plan
        return _WORLDS[plan.depth](
            plan.seed, config, surroundings_of(plan), late=plan.late, sinks=sinks
        )

    def make_owner(self) -> Owner:
        """Return who submits the jobs of the plan and does the rest of it."""
        return Owner(self.plan.jobs, self.plan.actions, {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.world.close()

    @property
    def active(self) -> frozenset[int]:
        """The jobs that are not INACTIVE."""
        return frozenset(self._jobs.active)

    def step(self) -> bool:
        """Let one thing happen; False if nothing is left to happen."""
        if self.moments is not None and not self.world.is_in_turn:
            self.moments.step()
        if not self.world.step():
            return False
        for each in self._after_step:
            self._check(each, self.world)
        return True

    def run(self, steps_max: int = STEPS_MAX) -> bool:
        """Go on until nothing is left to happen.

        Returns False after so many steps of the world, if it has too many records, or if a plugin
        was interrupted in an endless loop.
        """
        self._went_on = self.world.passed
        while not self._loop and self.step():
            if self.world.nsteps >= steps_max or self.world.has_too_many_records:
                return False
            if self._may_act_for_ever and self._is_quiet():
                return True
        return not self._loop

    def _is_quiet(self) -> bool:
        may_wait = self.moments is None and self._jobs.active
        quiet_s = self.world.passed - self._went_on - self._longest_s
        return quiet_s > (WAITING_S if may_wait else QUIET_S)

    def _note_loop(self, record: Record) -> None:
        self._loop = self._loop or loop_in(record)

    def _note_event(self, record: Record) -> None:
        if record.kind == Kind.EVENT and (record.data or {})["name"] != JobEvent.PRIORITY:
            self._went_on = self.world.passed

    def play(self) -> bool:
        """Run, put everything right and run again; return whether all came to rest.

        An endless loop of a plugin ends the world: nobody else can go on beside it.
        """
        while (is_over := self.run(FAULTS_STEPS_MAX)) and self.world.release_all():
            pass
        if self._loop:
            return False
        self.put_right()
        if not is_over:
            self.run()  # the owner has still asked for something, and may take away a node
        self.let_go_on()
        is_at_rest = self.run()
        if not self._loop and any(name not in self.world.stations for name in self.world.modules):
            self.world.boot()  # a module left since another one was not yet as it has to be
            is_at_rest = self.run()
        asked: set[int] = set()
        while is_at_rest and (late := self._late_jobs(asked)):
            asked.update(late)
            name = self.world.router.unique_name("last")
            self._connect(name, Owner((), _urgencies(late), dict(enumerate(late))))
            is_at_rest = self.run()
        return is_at_rest

    def put_right(self) -> None:
        """End the faults: load what is not there."""
        if self.lives is not None:
            self.lives.hold_to_account(self.world)
        if self.moments is not None:
            self.moments.end()
            self.moments = None
        self.world.trace.add_sink(self._waiting.observe)
        for name in list(self.world.liars):
            self.world.unload(name)
        if any(isinstance(each, PluginFault) and each.hook in _HOLDING for each in self.struck):
            self.world.unload(topics.JOB_MANAGER)
        for name in self.world.modules:
            self.world.load(name)

    def let_go_on(self) -> None:
        """Bring nodes back, and let queues and jobs go on."""
        active = self._jobs.unfinished(self.world.disk.store)
        todo = [Do(0.0, "queue-start"), Do(0.0, "queue-enable"), *_nodes_back(self.plan)]
        self._connect("last", Owner((), (*todo, *_urgencies(active)), dict(enumerate(active))))

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
        world, lives = self.world, self.lives
        assert lives is not None  # an outcome is a judgement
        if self._loop:  # the world has ended before all had their due
            problem = f"{no_plugin_fails.name}: {self._loop}"
            return self._outcome_with([problem])
        problems = []
        if is_at_rest:
            lives.finish()
            problems = self._left_over()
            for each in self._properties:
                if each.looks_at == "rest":
                    self._check(each, world)
            for watcher in self._watchers.values():
                watcher.rest()
        else:
            records = world.trace.nrecords
            problems = [f"rest: there is none after {world.nsteps} steps and {records} records"]
        for each in self._properties:
            if each.looks_at == "trace" and world.liars.keys().isdisjoint(each.modules):
                self._check(each, self.trace)
        said = {each.name: w.problem for each, w in self._watchers.items() if w.problem}
        problems += [f"{name}: {text}" for name, text in (self.broken | said).items()]
        problems += [f"{ERROR}: {each}" for each in world.errors]
        violations = lives.violations
        lies = [described(each) for each in violations if violator(each) in world.liars]
        problems += [described(each) for each in violations]
        lies += [described(each) for each in lives.owed]
        if any(fault.holds is Holds.NO_ERROR for fault in self.struck):
            excused = [each for each in problems if property_of(each) != ERROR]
        else:
            excused = lies
        return self._outcome_with(
            [each for each in problems if each not in excused],
            (*violations, *lives.owed),
            excused,
        )

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
            tuple(self.world.log),
            tuple(excused),
            tuple(
                self.plan.actions[place - len(self.plan.jobs)]
                for place in prompts_of(self.plan)
                if place not in self._prompted
            ),
        )

    def _check(self, check: Property, seen: object) -> None:
        if check.name not in self.broken and (text := check(seen)):
            self.broken[check.name] = text

    def _pause(self) -> None:
        """Nobody has anything to do before time passes."""
        is_calm = self.world.is_calm
        if is_calm and self.lives is not None:
            self.lives.pause(self.world)
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

    def _left_over(self) -> list[str]:
        store = self.world.disk.store
        active = self._jobs.unfinished(store)
        waiting = self._waiting.rightly(active, store)
        problems = [
            f"inactive: {format_fluid(jobid, 'f58')} {_still(stored_job(jobid, store))}"
            for jobid in active
            if jobid in self.owner.ids.values() and jobid not in waiting
        ]
        for jobid, told in self.owner.read.items():
            (stored,) = store.lookup([job_key(jobid, EVENTLOG)])
            if stored not in (told, None):  # None: it was purged
                name = format_fluid(jobid, "f58")
                problems.append(f"read: {name} has the eventlog {stored!r}, told was {told!r}")
        return problems + [
            f"answered: the owner's {_called(asked)} has no answer"
            for asked in self.owner.unanswered
            if not self._waits_rightly(asked, waiting)
        ]

    def _waits_rightly(self, asked: JobPlan | Do, waiting: set[int]) -> bool:
        """Whether a request waits for the end of a job that may wait for ever itself."""
        if isinstance(asked, JobPlan):
            return False
        if asked.what in ("queue-drain", "queue-idle"):
            return bool(waiting)
        return asked.what == "watch" and self.owner.ids[asked.job] in waiting


def _called(asked: JobPlan | Do) -> str:
    if isinstance(asked, JobPlan):
        return f"submission at {asked.at:g} s"
    about = f" of job {asked.job}" if asked.what in JOB_ACTIONS else ""
    return f"{asked.what}{about}"


def _still(job: Job | None) -> str:
    if job is None:
        return "has no eventlog that can be read, and is not over at rest"
    waits = ", ".join(sorted(job.dependencies or ()))
    text = f"is in {job.state.name} at rest"
    return f"{text}, and waits for {waits}" if waits else text


def _urgencies(jobs: list[int]) -> tuple[Do, ...]:
    """Return the requests by which jobs that are held go on."""
    return tuple(Do(0.0, "urgency", job=place, value=URGENCY) for place in range(len(jobs)))


def _nodes_back(plan: Plan) -> Iterator[Do]:
    ranks = {each.rank for each in plan.actions}
    for fault in plan.faults:
        ranks.update(fault.unfit_ranks(plan))
    for rank in sorted(ranks):
        for what in ("up", "undrain"):
            yield Do(0.0, what, rank=rank)
    is_excluding = any(each.what == "exclude" for each in plan.actions)
    if is_excluding or any(each.may_exclude for each in plan.faults):
        yield Do(0.0, "include")


_HOLDING: Final = (STATE_TOPICS[JobState.RUN], STATE_TOPICS[JobState.CLEANUP])
"""Hooks about jobs that may have resources. No new urgency lets a job go on that a plugin holds
there, but a job manager that is loaded again asks about it once more."""

_WORLDS: Final = {"cores": CoresWorld, "stack": StackWorld}


def config_of(plan: Plan) -> Config:
    """Return the configuration of the instance of a plan."""
    sched = SchedConfig(policy=plan.policy)
    if plan.limit:
        sched = SchedConfig(policy=plan.policy, mode="limited", limit=plan.limit)
    queues = {queue_name(number): QueueTable() for number in range(plan.queues)}
    limited = JobManagerConfig(plugin_loop_limit=f"{LOOP_S}s")
    return Config(exec=ExecConfig(simulate=True), job_manager=limited, sched=sched, queues=queues)


def prompts_of(plan: Plan) -> dict[int, When]:
    """Return the requests of the owner that wait for a message, by their place."""
    begin = len(plan.jobs)
    return {
        place: each.when for place, each in enumerate(plan.actions, begin) if each.when is not None
    }


def surroundings_of(plan: Plan) -> Surroundings:
    """Return what the modules of a plan are given."""
    cores = (1 << plan.cores) - 1
    ranks = range(plan.nnodes)
    hooks = [fault.hook for fault in plan.faults if isinstance(fault, PluginFault)]
    excluded = [rank for each in plan.faults for rank in each.excluded_at_start]
    down = [rank for each in plan.faults for rank in each.down_at_start]
    return Surroundings(
        ResourceSet.build(((rank, cores, 0) for rank in ranks), "node{}".format),
        exclude=Idset.of(rank for rank in excluded if rank in ranks),
        missing={rank: "it is down" for rank in down if rank in ranks},
        hooks=tuple(dict.fromkeys(hooks)),
        plugins=tuple(map(plugin_file, plan.plugins)),
        store=plan.store,
    )
