"""Draws what is seldom visited: the second page, the second time, and requests that nobody makes.

Each has a share of the worlds. Those with many jobs have small pages, jobs that are moved, and
requests for the history, late enough that faults hardly ever prevent them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, get_args

from msgspec.structs import replace

from flux_trio.lab import catalogue as c
from flux_trio.lab.catalogue import When
from flux_trio.lab.catalogue.places import Type
from flux_trio.lab.plans.combined_faults import Table
from flux_trio.lab.plans.plan import Plan, reloadable_of
from flux_trio.lab.plans.workload import Action, JobPlan, OwnerRequest
from flux_trio.lab.world.plugin_files import Builtin
from flux_trio.lab.world.recovering import Tool
from flux_trio.messages import topics

MANY_JOBS: Final = 20
SMALL: Final = 2
QUEUES: Final = 2
STACK_SHARE: Final = 0.1
_OWN_SHARE: Final = 1 / 3
BACKUP_SHARE: Final = 0.03
_HELD: Final = 0
_URGENCY: Final = 16
_BETTER: Final = 20


class _Visits:
    """A plan to which visits are added."""

    def __init__(self, draw: Random, plan: Plan, span_s: float) -> None:
        self.draw = draw
        self.plan = plan
        self.span_s = span_s

    def some(self) -> int:
        """Draw a small number, from 1 to the number of jobs."""
        return Table(self.draw, self.plan.jobs, self.plan.nnodes, 0, self.span_s).some()

    def moment(self) -> float:
        return round(self.draw.uniform(0, self.span_s), 1)

    def ask(self, *asked: OwnerRequest) -> None:
        self.plan = replace(self.plan, actions=(*self.plan.actions, *asked))

    def submit(self, *jobs: JobPlan) -> range:
        """Add jobs behind the others, and return their places."""
        first = len(self.plan.jobs)
        self.plan = replace(self.plan, jobs=(*self.plan.jobs, *jobs))
        return range(first, first + len(jobs))

    def queue(self) -> int | None:
        """Draw the queue of a job."""
        return self.draw.randrange(self.plan.queues) if self.plan.queues else None


def with_visits(draw: Random, plan: Plan, span_s: float, *, is_to_grow: bool) -> Plan:
    """Return the plan with what it visits beside; requests without a message within `span_s`.

    With `is_to_grow` it may get more jobs, and a fault.
    """
    if not plan.jobs:
        return plan
    visits = _Visits(draw, plan, span_s)
    has_many = len(plan.jobs) >= MANY_JOBS
    if draw.random() < 0.5 or has_many:
        visits.plan = replace(visits.plan, pages=SMALL)
    if has_many and not plan.queues:
        _divide_into_queues(visits)
    if visits.plan.queues and (draw.random() < 0.7 or has_many):
        _move(visits)
        if is_to_grow and draw.random() < 0.3:
            _move_held_jobs(visits, visits.moment())
    if draw.random() < 0.3 or has_many:
        _read_history(visits)
    if draw.random() < _BUILTINS_SHARE:
        _load_builtins(visits)
    for visit in _SELDOM if is_to_grow else ():
        if draw.random() < _SELDOM_SHARE:
            visit(visits)
    if len(visits.plan.jobs) >= MANY_JOBS:
        _end_with_what_is_seldom(visits, is_to_grow=is_to_grow)
    if is_to_grow and draw.random() < _PURGE_SHARE:
        _purge_while_finished_jobs_are_read(visits)
    return visits.plan


def with_visits_of_stack(draw: Random, plan: Plan, span_s: float) -> Plan:
    """Return the plan with what only a world of the stack visits.

    A tenth has a kill, after which a tool works on the state file, as many have jobs that wait for
    others, and as many load plugins again. Of those with plugins of the user, a third loads these
    again.
    """
    visits = _Visits(draw, plan, span_s)
    if plan.jobs and draw.random() < STACK_SHARE:
        _recover(visits)
    if plan.jobs and draw.random() < STACK_SHARE:
        _wait_for_one_another(visits)
    if plan.jobs and draw.random() < STACK_SHARE:
        _reload_a_plugin(visits)
    if plan.jobs and plan.plugins and draw.random() < _OWN_SHARE:
        for _ in range(draw.choice((1, 2, 3))):
            _load_again(visits, draw.randrange(len(plan.plugins)))
    return visits.plan


def with_backup(draw: Random, plan: Plan, span_s: float) -> Plan:
    """Return the plan, three of a hundred with a backup that is made while jobs start and end."""
    visits = _Visits(draw, plan, span_s)
    if plan.jobs and draw.random() < BACKUP_SHARE:
        _back_up(visits)
    return visits.plan


def _back_up(visits: _Visits) -> None:
    """Mostly the instance is killed: before the backup is complete, or as it is, to be restored."""
    draw = visits.draw
    topic, type_ = draw.choice(_WHILE_JOBS_RUN)
    nth = min(visits.some(), visits.some())
    begins = When(topic, nth, draw.choice(("send", "recv")), type_)
    visits.ask(OwnerRequest(visits.moment(), "backup", when=begins))
    kill = draw.choice(("", "before", "at its end"))
    tool: Tool = "restore"
    when = When(topics.KVS_OWN.backup, 1, "send", "response")
    if kill == "before":
        tool = draw.choice(get_args(Tool))
        when = replace(begins, nth=nth + draw.choice((1, 2, 4)))
    if kill:
        fault = c.Recover(when, tool, draw.choice((0.0, 0.5, 3.0)))
        visits.plan = replace(visits.plan, faults=(*visits.plan.faults, fault))
        visits.ask(OwnerRequest(visits.span_s, "queue-start"))
    visits.plan = replace(visits.plan, store="sqlite", pages=SMALL)


def _recover(visits: _Visits) -> None:
    draw = visits.draw
    for _ in range(draw.choice((1, 1, 2))):
        tool: Tool = draw.choice(("repair", "repair", "restore", "restore", "nothing"))
        topic, type_ = draw.choice(_WHILE_JOBS_RUN)
        when = When(topic, visits.some(), draw.choice(("send", "recv")), type_)
        fault = c.Recover(when, tool, draw.choice((0.0, 0.5, 3.0)))
        visits.plan = replace(visits.plan, faults=(*visits.plan.faults, fault))
    visits.ask(OwnerRequest(visits.span_s, "queue-start"))
    visits.plan = replace(visits.plan, store="sqlite", pages=SMALL)


def _load_builtins(visits: _Visits) -> None:
    """The world loads builtin plugins that not every one has; some jobs may need them."""
    draw = visits.draw
    builtins = draw.sample(get_args(Builtin), draw.choice((1, 2, 3)))
    visits.plan = replace(visits.plan, builtins=tuple(sorted(builtins)))
    if "dependency-singleton" in builtins:
        jobs = tuple(replace(job, is_single=draw.random() < 0.4) for job in visits.plan.jobs)
        visits.plan = replace(visits.plan, jobs=jobs)


def _wait_for_one_another(visits: _Visits) -> None:
    """Some jobs wait for the end of one that comes before them."""
    draw, jobs = visits.draw, visits.plan.jobs
    waiting = [
        replace(job, at=max(job.at, 0.5), after=draw.randrange(place))
        if place and draw.random() < 0.4
        else job
        for place, job in enumerate(jobs)
    ]
    visits.plan = replace(visits.plan, jobs=tuple(waiting))


def _reload_a_plugin(visits: _Visits) -> None:
    """Plugins are loaded again, whatever state their jobs are in; often when one has ended."""
    draw = visits.draw
    builtins = {*visits.plan.builtins, "held-epilog", draw.choice(("alloc-check", "perilog"))}
    visits.plan = replace(visits.plan, builtins=tuple(sorted(builtins)))
    for _ in range(draw.choice((1, 2, 3))):
        nothers = len(reloadable_of(visits.plan)) if draw.random() < 0.5 else 1
        _load_again(visits, draw.randrange(nothers))


def _load_again(visits: _Visits, place: int) -> None:
    """The plugin at this place, from the last one, is loaded again.

    Mostly a start has three answers: the job has started, it has finished, it is released.
    """
    draw = visits.draw
    number = len(reloadable_of(visits.plan)) - 1 - place
    topic, type_ = draw.choice(_WHILE_JOBS_RUN)
    when = When(topic, visits.some(), draw.choice(("send", "recv")), type_)
    if draw.random() < 0.5:
        when = When("job-exec.start", 3 * draw.choice((1, 1, 2, 3)), "recv", "response")
    visits.ask(OwnerRequest(visits.moment(), "reload-plugin", value=number, when=when))


def _hold_in_cleanup(visits: _Visits) -> When:
    """A plugin holds one of the first jobs in CLEANUP; return when that begins, or soon after it.

    Mostly a start has three answers: the job has started, it has finished, it is released.
    """
    draw = visits.draw
    nth = draw.choice((1, 1, 2))
    holds = c.PluginHangs(nth, "job.state.cleanup", draw.choice((5.0, 20.0)))
    visits.plan = replace(visits.plan, faults=(*visits.plan.faults, holds))
    return When("job-exec.start", 3 * nth - draw.choice((0, 0, 1)), "recv", "response")


def _start_again_in_cleanup(visits: _Visits) -> None:
    """The job manager, and its plugins with it, start again while a job is held in CLEANUP."""
    again = c.Reload("job-manager", _hold_in_cleanup(visits))
    visits.plan = replace(visits.plan, faults=(*visits.plan.faults, again))


def _survive_a_cancel(visits: _Visits) -> None:
    """A job that is canceled goes on, since job-exec hangs, and the job manager starts again."""
    draw = visits.draw
    at, queue = visits.moment(), visits.queue()
    (place,) = visits.submit(JobPlan(at, run=40.0, queue=queue))
    visits.ask(OwnerRequest(round(at + 0.5, 1), "cancel", job=place))
    canceled = When(topics.JOB_RAISE, 1, "recv")
    away = c.Linger("job-exec", canceled, draw.choice((2.0, 20.0)))
    again = When(topics.JOB_RAISE, 1, "send", "response")
    visits.plan = replace(
        visits.plan, faults=(*visits.plan.faults, away, c.Reload("job-manager", again))
    )


def _divide_into_queues(visits: _Visits) -> None:
    """Give the world named queues in place of the anonymous one."""
    visits.plan = replace(visits.plan, queues=QUEUES)
    jobs = tuple(replace(each, queue=visits.queue()) for each in visits.plan.jobs)
    visits.plan = replace(visits.plan, jobs=jobs)


def _move(visits: _Visits) -> None:
    """A job is moved to the other queue and mostly back, while it waits.

    It can be moved only then: so it is soon after its submission, or while queues are stopped.
    """
    draw = visits.draw
    place = draw.randrange(len(visits.plan.jobs))
    job = visits.plan.jobs[place]
    at = round(job.at + draw.choice((0.0, 0.1, 0.5, 2.0)), 1)
    moves = draw.choice((1, 2, 2, 3))
    step = draw.choice((0.0, 0.1, 0.5, 5.0))
    here = job.queue or 0
    when = When(topics.SCHED_ALLOC, visits.some(), draw.choice(("send", "recv")))
    is_stopped = draw.random() < 0.6
    if is_stopped:
        before, queue = round(max(0.0, job.at - 0.1), 1), draw.choice((None, job.queue))
        visits.ask(OwnerRequest(before, "queue-stop", queue=queue))
    for count in range(moves):
        there = (here + 1 + count) % visits.plan.queues
        at_message = when if count == 0 and not is_stopped and draw.random() < 0.3 else None
        visits.ask(
            OwnerRequest(
                round(at + count * step, 1), "move", job=place, queue=there, when=at_message
            )
        )
    if is_stopped:
        visits.ask(
            OwnerRequest(round(at + moves * step + draw.choice((0.0, 0.5, 5.0)), 1), "queue-start")
        )


def _move_held_jobs(visits: _Visits, at: float, njobs: int = 1) -> None:
    """Jobs that are held are moved, mostly there and back; the first is released, others end."""
    draw = visits.draw
    queue = draw.randrange(visits.plan.queues)
    places = visits.submit(*[JobPlan(at, run=0.5, urgency=_HELD, queue=queue)] * njobs)
    for _ in range(draw.choice((1, 2, 2))):
        queue = (queue + 1) % visits.plan.queues
        at = round(at + draw.choice((0.0, 0.5, 5.0)), 1)
        visits.ask(*(OwnerRequest(at, "move", job=place, queue=queue) for place in places))
    at = round(at + draw.choice((0.0, 0.5, 5.0)), 1)
    first, *others = places
    visits.ask(OwnerRequest(at, "urgency", job=first, value=_URGENCY))
    visits.ask(*(OwnerRequest(at, "cancel", job=place) for place in others))


def _end_with_what_is_seldom(visits: _Visits, *, is_to_grow: bool) -> None:
    """After most faults, jobs are moved, and the history is more than a page.

    Before, faults may take the jobs that were to be moved, and while nodes are away none ends: so
    most of these are canceled.
    """
    visits.plan = replace(visits.plan, pages=SMALL)
    if not visits.plan.queues:
        _divide_into_queues(visits)
    at = visits.span_s * 2
    visits.ask(OwnerRequest(at, "queue-enable"), OwnerRequest(at, "history"))
    if is_to_grow:
        _move_held_jobs(visits, at + 1.0, SMALL + 2)
    at = visits.span_s * 4
    visits.ask(OwnerRequest(at, "history"), OwnerRequest(at, "purge"), OwnerRequest(at, "history"))


def _read_history(visits: _Visits) -> None:
    """The ids of the jobs are asked for, often twice, and finished jobs may be purged between."""
    draw = visits.draw
    at = visits.moment()
    visits.ask(OwnerRequest(at, "history"))
    if draw.random() < 0.5:
        visits.ask(OwnerRequest(round(at + draw.choice((0.0, 0.5, 30.0)), 1), "purge"))
    if draw.random() < 0.7:
        visits.ask(OwnerRequest(round(at + draw.choice((0.0, 0.5, 30.0, 60.0)), 1), "history"))


def _wait_for_nodes_that_go(visits: _Visits) -> None:
    """Two jobs wait for all nodes, behind one that runs, when a node is taken away for good."""
    draw, nnodes = visits.draw, visits.plan.nnodes
    at, queue = visits.moment(), visits.queue()
    wide = JobPlan(at, nnodes=nnodes, run=draw.choice((0.5, 2.0)), queue=queue)
    visits.submit(replace(wide, run=7.0, nnodes=1, ntasks=1), wide, replace(wide, at=wide.at + 0.1))
    when = When(topics.SCHED_ALLOC, visits.some() + 2, draw.choice(("send", "recv")))
    gone = c.Shrink((draw.randrange(nnodes),), when, draw.choice((5.0, 20.0)))
    visits.plan = replace(visits.plan, faults=(*visits.plan.faults, gone))


def _release_two(visits: _Visits) -> None:
    """Two jobs are held and released; the first does not fit beside a job that runs."""
    draw, nnodes = visits.draw, visits.plan.nnodes
    at, queue = visits.moment(), visits.queue()
    wide = JobPlan(at, nnodes=nnodes, run=0.5, urgency=_HELD, queue=queue)
    small = JobPlan(at, run=0.5, urgency=_HELD, queue=draw.choice((queue, visits.queue())))
    _, *held = visits.submit(JobPlan(at, run=7.0, queue=queue), wide, small)
    released = round(at + draw.choice((0.0, 0.5, 2.0)), 1)
    for place in held:
        value = draw.choice((_URGENCY, _URGENCY, 20))
        visits.ask(OwnerRequest(released, "urgency", job=place, value=value))


def _cancel_and_go_on(visits: _Visits) -> None:
    """A job that runs is canceled or loses a node, and others start on what it had.

    One of these was better for a moment while it waited.
    """
    draw, at, queue = visits.draw, visits.moment(), visits.queue()
    nnodes = visits.plan.nnodes
    running = JobPlan(at, nnodes=nnodes, run=40.0, queue=queue)
    place, waiting, _ = visits.submit(running, *[replace(running, run=0.5)] * 2)
    for seconds, urgency in ((0.2, _BETTER), (0.4, running.urgency)):
        visits.ask(OwnerRequest(round(at + seconds, 1), "urgency", job=waiting, value=urgency))
    what: Action = draw.choice(("cancel", "cancel", "down"))
    ends = round(at + draw.choice((0.5, 2.0)), 1)
    rank = draw.randrange(nnodes)
    visits.ask(OwnerRequest(ends, what, job=place, rank=rank))
    if what == "down":
        visits.ask(OwnerRequest(round(ends + draw.choice((0.5, 5.0)), 1), "up", rank=rank))


def _lose_a_grant_that_was_awaited(visits: _Visits) -> None:
    """A job gets the nodes whose release was foreseen, and loses one while its R is stored."""
    draw, nnodes = visits.draw, visits.plan.nnodes
    queue, ncores = visits.queue(), nnodes * visits.plan.cores
    before = JobPlan(ntasks=ncores, run=5.0, limit=10.0, urgency=20, queue=queue)
    visits.submit(before, replace(before, at=0.1, run=0.5, urgency=19))
    stored = When(topics.KVS_COMMIT, draw.choice((2, 2, 2, 3, 4)), "send", party="sched")
    ranks, back = (draw.randrange(nnodes),), draw.choice((5.0, 60.0))
    gone = draw.choice((c.NodesDown, c.Drain, c.Shrink))(ranks, stored, back)
    faults = (c.SlowDisk(stored, 0.5, 2.0), gone)
    visits.plan = replace(visits.plan, faults=(*visits.plan.faults, *faults))


def _purge_while_finished_jobs_are_read(visits: _Visits) -> None:
    """Job-list is loaded again when most jobs have ended, and hangs while it reads which ones; they
    are purged meanwhile.

    When it begins to follow the jobs it asks for a page of the active ones and one of the finished
    ones: twice here, and again whenever the job manager has been away.
    """
    draw, at = visits.draw, visits.span_s * 3
    nbefore = sum(each.what == "history" and each.at < at for each in visits.plan.actions)
    told = When(topics.JOB_HISTORY, nbefore + 1, "send", "response")
    asked = When(topics.KVS_OWN.page, draw.choice((4, 4, 6)), "send", party=topics.JOB_LIST)
    again, away = c.Reload("job-list", told), c.Linger("job-list", asked, 0.5)
    visits.plan = replace(visits.plan, faults=(*visits.plan.faults, again, away))
    visits.ask(OwnerRequest(at, "history"), OwnerRequest(at, "purge", when=asked))


_WHILE_JOBS_RUN: Final[tuple[tuple[str, Type], ...]] = (
    ("job-exec.start", "request"),
    ("job-exec.start", "response"),
    ("job-exec.start", "response"),
    (topics.KVS_COMMIT, "request"),
    (topics.SCHED_ALLOC, "response"),
)
_SELDOM_SHARE: Final = 0.1
_BUILTINS_SHARE: Final = 0.15
_PURGE_SHARE: Final = 0.2  # of which the page comes after the purge in a tenth
_SELDOM: Final[tuple[Callable[[_Visits], None], ...]] = (
    _wait_for_nodes_that_go,
    _release_two,
    _cancel_and_go_on,
    _lose_a_grant_that_was_awaited,
    _survive_a_cancel,
    _start_again_in_cleanup,
)
