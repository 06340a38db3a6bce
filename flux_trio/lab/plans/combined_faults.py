"""Draws what goes wrong together: faults and requests that do harm only if they meet.

Faults that are drawn one by one seldom meet: a node goes down while the resources of a job on it
are being stored, a second hello is said while the first is answered, a user asks for something
while a module is away. Each meeting here is drawn as a whole, beside the other faults of a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

from msgspec.structs import replace

from flux_trio.lab import catalogue as c
from flux_trio.lab.catalogue import Fault, When
from flux_trio.lab.catalogue.aim import Aim
from flux_trio.lab.catalogue.places import Module
from flux_trio.lab.plans.plan import Plan
from flux_trio.lab.plans.workload import SPAN_S, Action, JobPlan, OwnerRequest
from flux_trio.messages import topics

AWAY_S: Final = (0.5, 3.0, 12.0)
LATER_S: Final = (0.0, 0.5, 5.0, 60.0)
URGENCIES: Final = (0, 1, 16, 20, 31)

Coincidence = tuple[tuple[Fault, ...], tuple[OwnerRequest, ...]]


class Table:
    """The jobs, nodes and queues of one world, from which faults and requests are drawn."""

    def __init__(
        self, draw: Random, jobs: Sequence[JobPlan], nnodes: int, queues: int, span_s: float
    ) -> None:
        self.draw = draw
        self.jobs = jobs
        self.aim = Aim(draw, len(jobs), nnodes)
        self._queues = queues
        self.span_s = span_s

    def ranks(self) -> tuple[int, ...]:
        """Return one or two nodes: in half of the cases node 0, which jobs get first."""
        return (0,) if self.draw.random() < 0.5 else self.aim.ranks()

    def some(self) -> int:
        """Draw a number from 1 to the number of jobs, rather a small one."""
        return min(1 + int(self.draw.expovariate(2 / len(self.jobs))), len(self.jobs))

    def asked(self, when: When | None, what: Action) -> Iterator[OwnerRequest]:
        """Yield a request of the owner at `when`, and often a later one that undoes it."""
        at = round(self.draw.uniform(0, self.span_s), 1)
        after = round(at + self.draw.choice(LATER_S), 1)
        queue = self.draw.randrange(self._queues) if self._queues else None
        back = _BACK.get(what)
        match what:
            case "cancel":
                yield OwnerRequest(at, what, job=self._job(), when=when)
            case "urgency":
                job, value = self._job(), self.draw.choice(URGENCIES)
                yield OwnerRequest(at, what, job=job, value=value, when=when)
            case "down" | "drain":
                for rank in self.ranks():
                    yield OwnerRequest(at, what, rank=rank, when=when)
                    yield OwnerRequest(after, _BACK[what], rank=rank)
            case _:
                yield OwnerRequest(at, what, queue=queue, when=when)
                if back is not None and self.draw.random() < 0.5:
                    yield OwnerRequest(after, back, queue=queue)

    def _job(self) -> int:
        return self.draw.randrange(len(self.jobs))


_BACK: Final[dict[Action, Action]] = {
    "down": "up",
    "drain": "undrain",
    "queue-stop": "queue-start",
    "queue-disable": "queue-enable",
}


def table_of(draw: Random, plan: Plan) -> Table:
    """Return what the world of a plan has."""
    return Table(draw, plan.jobs, plan.nnodes, plan.queues, SPAN_S)


def draw_coincidence(draw: Random, plan: Plan) -> Coincidence:
    """Return faults, and requests of the owner, that are likely to meet; in a third of the cases
    none.

    A request is made when a message comes that it names, or else at a time in the first SPAN_S
    seconds.
    """
    if not plan.jobs or draw.random() < 1 / 3:
        return (), ()
    return draw.choice(_COINCIDENCES)(table_of(draw, plan))


def _while_resources_are_stored(table: Table) -> Coincidence:
    """Nodes go, or a user acts, while the scheduler waits for the commit of R.

    The scheduler hangs for a moment, and often takes one message after the other then.
    """
    draw = table.draw
    when = When(topics.KVS_COMMIT, table.some(), "send", party="sched")
    away: list[Fault] = [c.Linger("sched", when, draw.choice((0.5, 2.0)))]
    if draw.random() < 0.5:
        away.append(c.Slow("sched", when, 0.1, 5.0))
    if draw.random() < 0.3:
        away.append(c.SlowDisk(when, draw.choice((0.1, 1.0)), 5.0))
    match draw.choice(("down", "down", "shrink", "shrink", "cancel", "urgency")):
        case "down":
            nodes = c.NodesDown(table.ranks(), when, draw.choice((0.5, 5.0, 60.0)))
            return (*away, nodes), ()
        case "shrink":
            shrunk = c.Shrink(table.ranks(), when, draw.choice((0.0, 0.5, 5.0)))
            return (*away, shrunk), ()
        case "cancel":
            return tuple(away), tuple(table.asked(when, "cancel"))
        case _:
            return tuple(away), tuple(table.asked(when, "urgency"))


def _while_a_module_is_away(table: Table) -> Coincidence:
    """A module ends, and comes back only after the user has asked for one or two things."""
    draw = table.draw
    when = When("job-exec.start", table.some(), "recv", draw.choice(("request", "response")))
    if draw.random() < 0.4:
        when = table.aim.when()
    module = draw.choice(_AWAY)
    away = draw.choice((c.Crash, c.Crash, c.Linger))(module, when, draw.choice(AWAY_S))
    wanted: tuple[Action, ...] = ("down", "down", "down", "cancel", "urgency", *_BACK)
    asked = [each for _ in range(draw.choice((1, 1, 2))) for each in _one(table, when, wanted)]
    return (away,), tuple(asked)


def _one(table: Table, when: When | None, wanted: Sequence[Action]) -> Iterator[OwnerRequest]:
    return table.asked(when, table.draw.choice(wanted))


_AWAY: Final[tuple[Module, ...]] = (*("job-exec", "job-manager") * 2, *("sched", "resource"))


def _while_hello_is_answered(table: Table) -> Coincidence:
    """The scheduler says hello when jobs hold resources, and the job manager ends meanwhile."""
    draw = table.draw
    running = When("job-exec.start", table.some(), "recv", "response")
    first = draw.choice((c.Reload("sched", running), c.Reload("job-manager", running)))
    read = When(topics.KVS_OWN.lookup_all, 1, "send", party="sched")  # R of the jobs it was told of
    again = draw.choice(
        (
            read,
            read,
            read,
            When(topics.SCHED_HELLO, 2, "recv"),
            When(topics.SCHED_HELLO, draw.choice((2, 3)), "send", "response"),
            When(topics.SCHED_READY, 2, draw.choice(("send", "recv"))),
        )
    )
    manager = (c.Reload("job-manager", again), c.Crash("job-manager", again))
    second = draw.choice((*manager, *manager, c.Reload("sched", again)))
    slow = (c.Linger("sched", again, 0.5),) if draw.random() < 0.3 else ()
    return (first, *slow, second), ()


def _while_the_disk_is_full(table: Table) -> Coincidence:
    """Several commits wait for room on the disk: jobs are canceled, and get other urgencies."""
    draw = table.draw
    when = table.aim.when()
    full = c.DiskFull(when, draw.choice((0.5, 5.0)))
    slow = (c.SlowDisk(when, 1.0, 5.0),) if draw.random() < 0.5 else ()
    wanted: tuple[Action, ...] = ("cancel", "urgency", "urgency")
    asked = [
        replace(each, at=round(each.at / 10, 1))
        for _ in range(draw.randint(2, 5))
        for each in _one(table, draw.choice((when, when, None)), wanted)
    ]
    return (*slow, full), tuple(asked)


def _there_and_back(table: Table) -> Coincidence:
    """The urgency of a job that waits changes, and becomes again what it was."""
    draw = table.draw
    place = draw.randrange(len(table.jobs))
    job = table.jobs[place]
    at = round(job.at + draw.choice((0.1, 0.5, 2.0)), 1)
    after = round(at + draw.choice((0.0, 0.5, 5.0)), 1)
    value = draw.choice([each for each in URGENCIES if each not in (0, job.urgency)])
    return (), (
        OwnerRequest(at, "urgency", job=place, value=value),
        OwnerRequest(after, "urgency", job=place, value=job.urgency),
    )


def _purged_and_started_again(table: Table) -> Coincidence:
    """Finished jobs are purged; then the job manager, or all, is started again, or goes on."""
    draw = table.draw
    done = When(topics.JOB_PURGE, 1, draw.choice(("recv", "send", "send")), "response")
    at = round(draw.uniform(1.0, 40.0), 1)
    again: Fault = draw.choice((c.Reload("job-manager", done), c.RestartInstance(done, 0.5)))
    return (again,) if draw.random() < 0.5 else (), (OwnerRequest(at, "purge"),)


def _shrunk_and_back(table: Table) -> Coincidence:
    """Nodes are excluded, and included again before the scheduler has released them."""
    draw = table.draw
    when = When("job-exec.start", table.some(), "recv", draw.choice(("request", "response")))
    shrunk = c.Shrink(table.ranks(), when, draw.choice((0.0, 0.0, 0.5, 5.0)))
    module: Module = draw.choice(("sched", "job-exec", "job-manager"))
    slow = (c.Linger(module, when, draw.choice((0.5, 2.0))),) if draw.random() < 0.5 else ()
    return (shrunk, *slow), ()


_COINCIDENCES: Final[tuple[Callable[[Table], Coincidence], ...]] = (
    _while_resources_are_stored,
    _while_resources_are_stored,
    _while_a_module_is_away,
    _while_a_module_is_away,
    _while_hello_is_answered,
    _while_the_disk_is_full,
    _there_and_back,
    _purged_and_started_again,
    _shrunk_and_back,
)


def draw_lost_manager(draw: Random, plan: Plan) -> Coincidence:
    """Return faults that end the job manager between two of its steps; mostly none."""
    if not plan.jobs or draw.random() < 0.8:
        return (), ()
    between = draw.choice((_between_stored_and_submitted, _between_finish_and_release))
    return between(table_of(draw, plan)), ()


def _between_stored_and_submitted(table: Table) -> tuple[Fault, ...]:
    """The job manager is started again after job-ingest has stored a job, and before it submits it.

    job-ingest hangs meanwhile, so that the next job manager reads the job back.
    """
    draw = table.draw
    stores = When(topics.KVS_COMMIT, table.some(), "send", party="job-ingest")
    away = c.Linger("job-ingest", stores, draw.choice((0.5, 2.0)))
    stored = When(topics.KVS_COMMIT, draw.choice((1, 1, 2)), "send", "response", party="kvs")
    when = draw.choice((stores, stores, stored))
    return away, c.Crash("job-manager", when, draw.choice((0.0, 0.1, 0.5)))


def _between_finish_and_release(table: Table) -> tuple[Fault, ...]:
    """The job manager ends after it has stored the finish of a job, and before its release.

    It takes one message after the other then. Mostly a start has three answers: the job has
    started, it has finished, it is released.
    """
    draw = table.draw
    nth = 3 * table.some() - draw.choice((1, 1, 1, 2))
    finished = When("job-exec.start", nth, "send", "response")
    released = When("job-exec.start", nth + 1, "recv", "response")
    slow = c.Slow("job-manager", finished, 0.1, 5.0)
    back = draw.choice((0.0, 0.5, 3.0))
    gone: Fault = draw.choice(
        (
            c.Crash("job-manager", released, back),
            c.CrashTogether(("job-manager", "job-exec"), released, back),
            c.KillInstance(released, back),
        )
    )
    return slow, gone
