"""The acts in which another execution service says what ours never does to a job manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import trio
from msgspec.structs import replace

from flux_trio.broker import Handle
from flux_trio.config import DURATION_KEY
from flux_trio.editions import Edition
from flux_trio.editions.rfc32 import StartType
from flux_trio.formats import format_fluid
from flux_trio.lab.exercise.acts import Acts, where_hello_is_refused
from flux_trio.lab.exercise.managing_scheduler import seen
from flux_trio.lab.exercise.other_scheduler import about
from flux_trio.lab.exercise.sched_jobs import NNODES
from flux_trio.lab.exercise.stage import REFUSED, UNASKED, UNHARMED, Stage, Stuck, all_have, many
from flux_trio.lab.exercise.substitute_services import OTHER_EXEC, START, StandIn
from flux_trio.messages import Errno, FluxError, Request, respond_error, topics

OTHER_EXECUTION_ACTS: Final = Acts()

STATUSES: Final = (0, 1 << 8, 255 << 8, 9, 137 << 8)
"""Of wait(2): success, the least and the greatest exit code, a signal, a shell that tells of it."""
SAID: Final[tuple[tuple[StartType, dict[str, Any]], ...]] = (
    (StartType.START, {}),
    (StartType.EXCEPTION, {"severity": 0, "type": "exec", "note": "in vain"}),
    (StartType.FINISH, {"status": 256}),
    (StartType.RELEASE, {"ranks": "0-3", "final": True}),
)
"""All that an execution service can say of a job."""
ALL_BUT_LAST: Final = ("0", "2")
LAST: Final = "1,3"
"""How a job on all nodes is released: idsets that do not lie side by side."""


def where_hello_takes_over(edition: Edition) -> bool:
    """Say whether an execution service takes over what another one has to start."""
    return not where_hello_is_refused(edition)


class OtherExecution(StandIn):
    """Starts nothing, and says what it is told to say of each job."""

    def __init__(self, stage: Stage, handle: Handle) -> None:
        super().__init__(stage, handle)
        self.edition = stage.edition
        self.starts: dict[int, Request] = {}
        """The last start request of each job."""

    async def hello(self) -> None:
        await self._stage.call(topics.EXEC_HELLO, {"service": OTHER_EXEC}, self._handle)

    async def started(self, jobid: int, *, says: bool = True) -> bool:
        """Wait until a job is to be started, and start it; return `reattach`. Raises Stuck."""
        with self._stage.deadline():
            while jobid not in self.starts:
                for message in await self._handle.receive():
                    if isinstance(message, Request) and message.topic == START:
                        self.starts[about(message)] = message
        if jobid not in self.starts:
            what = f"{START} of job {format_fluid(jobid, 'f58')}"
            raise Stuck(f"{what}: not within {self._stage.deadline_s:g} s", "32.start.1")
        if says:
            self.told(jobid, StartType.START)
        payload = self.starts[jobid].payload
        return isinstance(payload, dict) and payload.get("reattach") is True

    def told(self, jobid: int, kind: StartType, **data: object) -> None:
        self.say(self.starts[jobid], kind, **data)

    def ended(self, jobid: int, status: int = 0, ranks: str = "0-3") -> None:
        """Say that a job has ended and is released."""
        self.told(jobid, StartType.FINISH, status=status)
        self.told(jobid, StartType.RELEASE, ranks=ranks, final=True)

    def fail(self, jobid: int) -> None:
        """Answer a start with an error, which ends the service (RFC 32, Implementation)."""
        self.answer(respond_error(self.starts[jobid], Errno.EINVAL, "an exercise"))


@asynccontextmanager
async def beside_ours(stage: Stage) -> AsyncIterator[OtherExecution]:
    """Have another execution service, which has said hello after ours; at the end ours is back."""
    async with _opened(stage) as other:
        yield other
    await stage.reload(topics.JOB_EXEC)


@asynccontextmanager
async def in_place_of_ours(stage: Stage) -> AsyncIterator[OtherExecution]:
    """Have another execution service while ours is not there; at the end it is back."""
    await stage.remove(topics.JOB_EXEC)
    async with _opened(stage) as other:
        yield other
    await stage.load(topics.JOB_EXEC)


@asynccontextmanager
async def _opened(stage: Stage) -> AsyncIterator[OtherExecution]:
    async with stage.visit(OTHER_EXEC) as handle:
        handle.register(OTHER_EXEC)
        other = OtherExecution(stage, handle)
        await other.hello()
        yield other


async def on_all_nodes(stage: Stage, other: OtherExecution, count: int = 1) -> list[int]:
    """Submit jobs that share all nodes, and start them."""
    jobs = await many(stage, count, nnodes=NNODES)
    for each in jobs:
        await other.started(each)
    await all_have(stage, jobs, "start")
    return jobs


@OTHER_EXECUTION_ACTS.act(
    "another execution service says hello while no job is started",
    "it replaces ours, and what it says of each job is in the events: statuses from 0 to 65280",
    ("32.hello.6", "32.criteria.7", "32.start.30", "32.start.38", UNHARMED),
)
async def replaced(stage: Stage) -> None:
    async with beside_ours(stage) as other:
        jobs = await many(stage, len(STATUSES))
        for jobid, status in zip(jobs, STATUSES, strict=True):
            await other.started(jobid)
            other.told(jobid, StartType.FINISH, status=status)
        await all_have(stage, jobs, "finish")
        for jobid, status in zip(jobs, STATUSES, strict=True):
            if (found := stage.seen.events(jobid)["finish"].get("status")) != status:
                name = format_fluid(jobid, "f58")
                raise Stuck(f"status of job {name}: expected {status}, got {found}", "32.start.30")
            other.told(jobid, StartType.RELEASE, ranks="0-3", final=True)
        await all_have(stage, jobs, "clean", "32.start.38")


@OTHER_EXECUTION_ACTS.act(
    "jobs are released in parts",
    "each part is an event, and nothing is freed as long as a rank has processes",
    ("32.start.23", "32.start.39", UNHARMED),
)
async def in_parts(stage: Stage) -> None:
    """The job in the middle is released; the others go on."""
    async with in_place_of_ours(stage) as other:
        jobs = await on_all_nodes(stage, other, 3)
        other.told(jobs[1], StartType.FINISH, status=0)
        for nth, ranks in enumerate(ALL_BUT_LAST, 1):
            other.told(jobs[1], StartType.RELEASE, ranks=ranks, final=False)
            await _released(stage, jobs[1], ranks, nth, final=False)
        await seen(stage, jobs[0])
        if "free" in stage.seen.events(jobs[1]):
            raise Stuck("a job was freed as a whole, and ranks were not released", "32.start.39")
        other.told(jobs[1], StartType.RELEASE, ranks=LAST, final=True)
        await _released(stage, jobs[1], LAST, len(ALL_BUT_LAST) + 1, final=True)
        await stage.event(jobs[1], "clean", "32.start.38")
        for each in jobs[::2]:
            stage.must_run(each, UNHARMED)
            other.ended(each)


async def _released(stage: Stage, jobid: int, ranks: str, nth: int, *, final: bool) -> None:
    what = f"event release of job {format_fluid(jobid, 'f58')}"
    await stage.until(what, lambda: stage.seen.count(jobid, "release") >= nth, "32.start.23")
    found, expected = stage.seen.events(jobid)["release"], {"ranks": ranks, "final": final}
    if dict(found) != expected:
        raise Stuck(f"{what}: expected {expected}, got {found}", "32.start.23")


@OTHER_EXECUTION_ACTS.act(
    "the execution service raises exceptions",
    "they are the job's, with their note; only a fatal one ends it",
    ("32.start.24", "32.start.28", UNHARMED),
)
async def raises(stage: Stage) -> None:
    async with in_place_of_ours(stage) as other:
        jobs = await on_all_nodes(stage, other, 3)
        mild = {"severity": 2, "type": "exercise", "note": "a note, with a comma"}
        other.told(jobs[1], StartType.EXCEPTION, **mild)
        await _raised(stage, jobs[1], 1, mild)
        stage.must_run(jobs[1], UNHARMED)
        stage.hopeless.add(jobs[1])
        fatal: dict[str, Any] = {"severity": 0, "type": "exec"}  # a note is optional
        other.told(jobs[1], StartType.EXCEPTION, **fatal)
        await _raised(stage, jobs[1], 2, fatal | {"note": ""})
        other.told(jobs[1], StartType.RELEASE, ranks="0-3", final=True)
        await stage.event(jobs[1], "clean", "32.start.24")
        for each in jobs[::2]:
            stage.must_run(each, UNHARMED)
            other.ended(each)


async def _raised(stage: Stage, jobid: int, nth: int, expected: dict[str, Any]) -> None:
    what = f"event exception of job {format_fluid(jobid, 'f58')}"
    await stage.until(what, lambda: stage.seen.count(jobid, "exception") >= nth, "32.start.24")
    found = {key: stage.seen.events(jobid)["exception"].get(key) for key in expected}
    if found != expected:
        raise Stuck(f"{what}: expected {expected}, got {found}", "32.start.28")


@OTHER_EXECUTION_ACTS.act(
    "a second execution service says hello while a start is outstanding",
    "it is refused, and the first one goes on",
    ("32.hello.8", UNHARMED),
    where=where_hello_is_refused,
)
async def second_hello(stage: Stage) -> None:
    async with in_place_of_ours(stage) as other:
        jobs = await on_all_nodes(stage, other, 3)
        async with stage.visit("second-exec") as second:
            second.register("second-exec")
            try:
                await second.call(topics.EXEC_HELLO, {"service": "second-exec"})
            except FluxError:
                pass
            else:
                raise Stuck("a second hello was accepted; a start is outstanding", "32.hello.8")
        await seen(stage, jobs[0])
        for each in jobs:
            stage.must_run(each, UNHARMED)
            other.ended(each)


@OTHER_EXECUTION_ACTS.act(
    "a start is answered with an error",
    "nothing is started any more before the service has said hello again, and no job fails by it",
    ("32.impl.6", "32.impl.7", "32.start.9", UNHARMED),
)
async def start_fails(stage: Stage) -> None:
    async with in_place_of_ours(stage) as other:
        jobs = await on_all_nodes(stage, other, 2)
        failing = await stage.submit(nnodes=NNODES)
        await other.started(failing, says=False)
        other.fail(failing)
        late = await stage.submit()
        await stage.event(late, "alloc")
        await seen(stage, jobs[0])
        if stage.seen.times_asked(topics.START_METHOD, late):
            raise Stuck("a job was started, and no hello had come since an error", "32.impl.7")
        other.starts.clear()
        await other.hello()
        for each, expected in {**dict.fromkeys(jobs, True), failing: False, late: False}.items():
            await _started_again(other, each, expected=expected)
        for each in (*jobs, failing, late):
            stage.must_run(each, "32.impl.6")
            other.ended(each)


async def _started_again(other: OtherExecution, jobid: int, *, expected: bool) -> None:
    """Wait for a start with this `reattach`, and answer it as the edition has it. Raises Stuck."""
    found = await other.started(jobid, says=not expected)
    if found != expected:
        name = format_fluid(jobid, "f58")
        raise Stuck(f"reattach of job {name}: expected {expected}, got {found}", "32.start.9")
    if expected and other.edition.tells_reattached:
        other.told(jobid, StartType.REATTACHED)


@OTHER_EXECUTION_ACTS.act(
    "the execution service says things once more, and of jobs that it was not asked to start",
    "no job changes by it",
    (UNASKED, REFUSED, "32.start.38", UNHARMED),
    is_for_ours=True,  # flux-core's job manager ends by some of it
)
async def said_in_vain(stage: Stage) -> None:
    """Of one job it says start and finish twice, and all of it of a job that waits or is over."""
    async with in_place_of_ours(stage) as other:
        jobs = await on_all_nodes(stage, other, 3)
        waiting = await stage.submit(nnodes=NNODES, exclusive=True)
        await stage.asked(topics.SCHED_ALLOC, waiting)
        other.told(jobs[1], StartType.START)
        other.told(jobs[1], StartType.FINISH, status=0)
        other.told(jobs[1], StartType.FINISH, status=256)
        await stage.event(jobs[1], "finish", "32.start.30")
        await stage.refused(topics.JOB_URGENCY, id=jobs[1], urgency=1)
        await stage.refused(topics.JOB_UPDATE, id=jobs[1], updates={DURATION_KEY: 600.0})
        other.told(jobs[1], StartType.RELEASE, ranks="0-3", final=True)
        await stage.event(jobs[1], "clean", "32.start.38")
        other.starts[waiting] = replace(other.starts[jobs[0]], payload={"id": waiting})
        for jobid in (jobs[1], waiting):
            for kind, data in SAID:
                other.told(jobid, kind, **data)
                await seen(stage, jobs[0])
                await _taken_up(stage, other, jobs[::2])
        for jobid, names in ((jobs[1], ("start", "finish", "release")), (waiting, ())):
            for kind, _ in SAID:
                if stage.seen.count(jobid, kind) > (kind in names):
                    text = f"job {format_fluid(jobid, 'f58')} has an event {kind}"
                    raise Stuck(f"{text} of what was said in vain", UNASKED)
        stage.must_wait(waiting, UNASKED)
        for each in jobs[::2]:
            stage.must_run(each, UNHARMED)
            other.ended(each)
        await other.started(waiting)
        other.ended(waiting)


async def _taken_up(stage: Stage, other: OtherExecution, jobs: Sequence[int]) -> None:
    """Say hello again; if that is taken, take up the jobs that run."""
    before = dict(other.starts)
    other.starts.clear()
    try:
        await other.hello()
    except FluxError:  # they are not lost
        other.starts.update(before)
        return
    for jobid in jobs:
        await _started_again(other, jobid, expected=True)
    other.starts.update({jobid: start for jobid, start in before.items() if jobid not in jobs})
    await seen(stage, jobs[0])


@OTHER_EXECUTION_ACTS.act(
    "the execution service is away while jobs run and end, and comes back",
    "jobs that run are to be taken up again, others are started, and nothing is said twice",
    ("32.start.9", "32.start.23", "32.criteria.6", UNHARMED),
)
async def away(stage: Stage) -> None:
    await stage.remove(topics.JOB_EXEC)
    async with _opened(stage) as first:
        jobs = await on_all_nodes(stage, first, 3)
        asked = await stage.submit()
        await first.started(asked, says=False)
    await stage.cancel(jobs[1])
    late = await stage.submit()
    await stage.event(late, "alloc")
    async with _opened(stage) as second:
        await _started_again(second, asked, expected=False)
        await _started_again(second, late, expected=False)
        for each in jobs:
            await _started_again(second, each, expected=True)
        second.told(jobs[1], StartType.FINISH, status=15)
        second.told(jobs[1], StartType.RELEASE, ranks="0-3", final=True)
        for each in (*jobs[::2], asked, late):
            stage.must_run(each, UNHARMED)
            second.ended(each)
        await all_have(stage, [*jobs, asked, late], "clean")
    await stage.load(topics.JOB_EXEC)
    stage.said_once([*jobs, asked, late], ("start", "finish"))


@OTHER_EXECUTION_ACTS.act(
    "the program is killed in every state of a job",
    "running jobs are taken up again, ending ones are released, waiting and held ones wait",
    ("32.start.9", "21.events.19", "21.criteria.8", "27.hello.4", UNHARMED),
)
async def killed_in_every_state(stage: Stage) -> None:
    """Jobs that wait, are held, are to be started, run, are ending, and have finished in part."""
    async with in_place_of_ours(stage) as other:
        starting, running, ending, finished = await many(stage, 4, nnodes=NNODES)
        for each in (running, ending, finished):
            await other.started(each)
        await all_have(stage, (running, ending, finished), "start")
        await other.started(starting, says=False)
        waiting, held = await many(stage, 2, nnodes=NNODES, exclusive=True)
        await stage.asked(topics.SCHED_ALLOC, held)
        await stage.call(topics.JOB_URGENCY, {"id": held, "urgency": 0})
        await stage.answered(topics.SCHED_ALLOC, held)
        await stage.cancel(ending)
        other.told(finished, StartType.FINISH, status=0)
        other.told(finished, StartType.RELEASE, ranks="0", final=False)
        await stage.event(finished, "release")
        await stage.asked(topics.SCHED_ALLOC, waiting)
        await stage.program.kill()
        other.starts.clear()
        before = stage.nready
        await stage.program.start()
        await stage.ready(before)
        await other.hello()
        await _started_again(other, running, expected=True)
        await _started_again(other, starting, expected=False)
        await _started_again(other, ending, expected=True)
        await stage.asked(topics.SCHED_ALLOC, waiting, 2, "21.criteria.8")
        if stage.seen.times_asked(topics.SCHED_ALLOC, held) > 1:
            raise Stuck("a job was held, and the scheduler is asked for it", "21.criteria.8")
        stage.must_wait(waiting, "27.hello.4")
        stage.must_run(running, UNHARMED)
        await _end_finished(stage, other, finished)
        for each in (starting, running):
            other.ended(each)
        other.ended(ending, 15)
        await other.started(waiting)
        other.ended(waiting)
        await stage.call(topics.JOB_URGENCY, {"id": held, "urgency": 16})
        await other.started(held)
        other.ended(held)
        await all_have(stage, [starting, running, ending, finished, waiting, held], "clean")
    stage.said_once([running, ending, finished], ("start", "finish", "free"))


async def _end_finished(stage: Stage, other: OtherExecution, jobid: int) -> None:
    """A job that has finished is over; a job manager may ask for its last release, or not."""
    with trio.move_on_after(1.0):
        await other.started(jobid, says=False)
        other.told(jobid, StartType.RELEASE, ranks="1-3", final=True)
    await stage.event(jobid, "clean")
