"""What the acts of an exercise use: jobs, the program, and waiting with a deadline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from flux_trio.broker import Handle
from flux_trio.editions import Edition, flux_kvs
from flux_trio.editions.kvs import Lookup
from flux_trio.editions.rfc21 import URGENCY_DEFAULT
from flux_trio.editions.rfc27 import AllocType
from flux_trio.formats import Jobspec, ResourceSet, format_fluid, job_key, parse_r
from flux_trio.lab.exercise.program import Driven
from flux_trio.lab.exercise.refusing import RefusingRouter
from flux_trio.lab.exercise.seen import Seen
from flux_trio.messages import Flag, FluxError, Payload, topics
from flux_trio.protocols import JobFlag
from flux_trio.trace import Record

LONG_S: Final = 3600.0
"""How long a job runs that its act ends, in seconds."""
RUN: Final = "system.exec.test.run_duration"
"""The attribute with the seconds that a job pretends to run, whatever its command is."""

UNHARMED: Final = "invariant.bystanders-run-on"
HELD: Final = "invariant.held-job-waits"
ONCE: Final = "invariant.answered-once"
URGENT: Final = "invariant.highest-priority"
REFUSED: Final = "invariant.wrong-requests-refused"
UNASKED: Final = "invariant.unasked-answers-ignored"
TOLD_TO_END: Final = "invariant.tasks-told-to-end"

LOOK_S: Final = 0.1
"""How often, in seconds, a stage looks whether the program runs, and whether it is idle."""

Visit = Callable[..., AbstractAsyncContextManager[Handle]]
"""A function that opens a further client of the instance: a name, and the owner's or a `userid`."""


class Stuck(Exception):
    """Something did not come, or came in the wrong way; the text says what.

    `clause` is the clause that is broken by this, "" if the act cannot say so.
    """

    def __init__(self, text: str, clause: str = "") -> None:
        super().__init__(text)
        self.clause = clause


@dataclass(eq=False)
class _Wait:
    """What an act waits for now; `left_s` are the seconds that the program still has."""

    left_s: float
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class Stage:
    """An instance and the program that serves it.

    `handle` is a client with the owner's rights; `visit` opens another one with a name. The program
    serves once its request `ready` is answered with a success. `deadline_s` are the seconds that it
    may be idle before what an act waits for is taken not to come.
    """

    def __init__(
        self,
        handle: Handle,
        program: Driven,
        ready: str,
        visit: Visit,
        deadline_s: float,
        router: RefusingRouter,
        machine: ResourceSet,
        edition: Edition,
    ) -> None:
        self.program = program
        self.machine = machine
        self.edition = edition
        self.deadline_s = deadline_s
        self._visit = visit
        self.ready_topic = ready
        self._router = router
        self.jobs: list[int] = []
        """The ids of all jobs, in the order of submission."""
        self.hopeless: set[int] = set()
        """Jobs that may be denied, or lose what they have."""
        self.touched: set[int] = set()
        """Jobs to which an act has done something that ends them; no other job may be harmed."""
        self._handle = handle
        self.seen = Seen(router.is_program, edition)
        self._news = trio.Event()
        self._waits: list[_Wait] = []

    @asynccontextmanager
    async def visit(self, name: str, userid: int | None = None) -> AsyncIterator[Handle]:
        """Open a further client of the exercise, a guest with a `userid` of its own."""
        self._router.clients.add(name)
        async with self._visit(name, userid=userid) as handle:
            self._router.own.add(handle.name)
            yield handle

    def refuse_next(self, topic: str) -> trio.Event:
        """Refuse the program's next request to `topic`; return what is set when it has come."""
        return self._router.refuse_next(topic)

    def observe(self, record: Record) -> None:
        """Take the next record of the trace."""
        self.seen.observe(record)
        self._news.set()

    # --- waiting

    async def watch(self) -> None:
        """Let the time of each `deadline` run, slower while the program is busy, until cancelled.

        So a deadline follows the machine: a program that does not get a processor is not late.
        """
        while True:
            await trio.sleep(LOOK_S)
            passed = LOOK_S * self.program.pace()
            for wait in self._waits:
                wait.left_s -= passed
                if wait.left_s <= 0:
                    wait.scope.cancel()
            self._news.set()

    @contextmanager
    def deadline(self, more_s: float = 0.0) -> Iterator[trio.CancelScope]:
        """Cancel the block when the program has been idle for the deadline, and `more_s`."""
        with self.idle(self.deadline_s + more_s) as scope:
            yield scope

    @contextmanager
    def idle(self, seconds: float) -> Iterator[trio.CancelScope]:
        """Cancel the block when the program has been idle for so long."""
        wait = _Wait(seconds)
        self._waits.append(wait)
        try:
            with wait.scope:
                yield wait.scope
        finally:
            self._waits.remove(wait)

    async def until(
        self, what: str, is_so: Callable[[], bool], clause: str = "", more_s: float = 0.0
    ) -> None:
        """Wait until `is_so()` is true; it is called after each record.

        The program may take `more_s` seconds than the deadline. Raises Stuck, with the `clause`
        that is broken if it never is.
        """
        if await self.until_or_end(what, is_so, clause, more_s):
            raise Stuck(f"{what}: the program has ended, with {self.program.returncode}")

    async def until_or_end(
        self, what: str, is_so: Callable[[], bool], clause: str = "", more_s: float = 0.0
    ) -> bool:
        """Wait until `is_so()` is true, or the program has ended; return whether it has.

        Raises Stuck as `until` does.
        """
        with self.deadline(more_s):
            while not is_so():
                if self.program.returncode is not None:
                    return True
                self._news = trio.Event()
                await self._news.wait()
            return False
        raise Stuck(f"{what}: not within {self.deadline_s + more_s:g} s", clause)

    async def serve(self) -> None:
        """Start the program and wait until it serves. Raises ProgramNotStarted and Stuck."""
        before = self.nready
        await self.program.start()
        await self.ready(before)

    @property
    def nready(self) -> int:
        """The number of times that the program has begun to serve."""
        return self.seen.answered[self.ready_topic]

    async def ready(self, before: int) -> None:
        """Wait until the program has begun to serve more than `before` times. Raises Stuck."""
        await self.until(f"{self.ready_topic} of the program", lambda: self.nready > before)

    async def event(self, jobid: int, name: str, clause: str = "", more_s: float = 0.0) -> None:
        """Wait until a job has the event `name`. Raises Stuck, which names what is not answered."""
        what = f"event {name} of job {format_fluid(jobid, 'f58')}"
        try:
            await self.until(what, lambda: name in self.seen.events(jobid), clause, more_s)
        except Stuck as stuck:
            raise Stuck(f"{stuck}{self.seen.cause(jobid)}", stuck.clause) from None

    async def another(self, jobid: int, name: str, nbefore: int, clause: str = "") -> None:
        """Wait until a job has more than `nbefore` events `name`. Raises Stuck."""
        what = f"event {name} of job {format_fluid(jobid, 'f58')}"
        await self.until(what, lambda: self.seen.count(jobid, name) > nbefore, clause)

    async def end_program(self, service: str) -> None:
        """End the program, and wait until `service` knows that it has gone. Raises Stuck."""
        topic = topics.disconnect_of(service)
        before = self.seen.taken[topic]
        await self.program.end()
        await self.until(f"{topic} of the program", lambda: self.seen.taken[topic] > before)

    async def left(self, refused: str, clause: str) -> None:
        """Wait until the program has ended, since `refused` was refused. Raises Stuck.

        Then nothing of it runs any more.
        """
        with self.deadline() as waiting:
            await self.program.wait()
        await self.program.kill()  # or the processes that it has left
        if waiting.cancelled_caught:
            text = f"{refused} was refused, and the program runs on for {self.deadline_s:g} s"
            raise Stuck(text, clause)

    async def asked(self, topic: str, jobid: int, times: int = 1, clause: str = "") -> None:
        """Wait until the program has been asked something about a job so often. Raises Stuck."""
        what = f"{topic} of job {format_fluid(jobid, 'f58')}"
        await self.until(what, lambda: self.seen.times_asked(topic, jobid) >= times, clause)

    async def answered(self, topic: str, jobid: int, clause: str = "") -> None:
        """Wait until the program has given its last answer about a job. Raises Stuck."""
        what = f"answer to {topic} of job {format_fluid(jobid, 'f58')}"
        await self.until(what, lambda: not self.seen.is_open(topic, jobid), clause)

    async def canceled(self, jobid: int) -> None:
        """Cancel a job that has to wait, and wait for the answer to its sched.alloc, which has to
        be CANCEL. Raises Stuck.
        """
        clause = "27.alloccancel.1"
        await self.asked(topics.SCHED_ALLOC, jobid)
        await self.cancel(jobid)
        await self.answered(topics.SCHED_ALLOC, jobid, clause)
        if (found := self.seen.answers.get((topics.SCHED_ALLOC, jobid))) != AllocType.CANCEL:
            text = f"job {format_fluid(jobid, 'f58')}: type {found} answers its cancel; expected 3"
            raise Stuck(text, clause)

    async def at_rest(self) -> None:
        """Wait until every job is INACTIVE. Raises Stuck, too, if one was harmed."""
        self._router.refuse_none()
        for jobid in self.jobs:
            await self.event(jobid, "clean")
        self.none_is_harmed()
        if twice := next((each for each, times in self.seen.freed.items() if times > 1), None):
            text = f"job {twice} was freed again after its final {topics.SCHED_FREE}"
            raise Stuck(text, "27.impl.9")
        if self.seen.twice:
            raise Stuck(f"{self.seen.twice[0]} was answered once more after its last answer", ONCE)
        self.jobs.clear()

    def none_is_harmed(self) -> None:
        """Raise Stuck if a job was denied, or ended, to which the act has done nothing."""
        for jobid in self.jobs:
            if jobid not in self.hopeless:
                self.must_have_been_possible(jobid)
            if jobid in self.seen.harms and jobid not in self.hopeless | self.touched:
                found = self.seen.harms[jobid]
                text = f"job {format_fluid(jobid, 'f58')} was to run on, and has an exception"
                what = f"{found.get('type')}: {found.get('note', '')}"
                raise Stuck(f"{text} of type {what}", UNHARMED)

    def must_have_been_possible(self, jobid: int) -> None:
        """Raise Stuck if a job was denied, although the machine is large enough for it."""
        if self.seen.answers.get((topics.SCHED_ALLOC, jobid)) == AllocType.DENY:
            text = f"job {format_fluid(jobid, 'f58')} fits on the machine, and was denied"
            raise Stuck(text, "28.criteria.3")

    def said_once(self, jobs: Iterable[int], names: Sequence[str]) -> None:
        """Raise Stuck if a job has an event twice that it may have once."""
        for jobid in jobs:
            for name in names:
                if (found := self.seen.count(jobid, name)) > 1:
                    text = f"job {format_fluid(jobid, 'f58')} has {found} events {name}; expected 1"
                    raise Stuck(text, "21.states.5")

    def must_run(self, jobid: int, clause: str) -> None:
        """Raise Stuck if a job that runs was ended by somebody."""
        if jobid in self.seen.harms or "finish" in self.seen.events(jobid):
            how = "a fatal exception" if jobid in self.seen.harms else "the event finish"
            text = f"job {format_fluid(jobid, 'f58')} was to run on, and has {how}"
            raise Stuck(text, clause)

    def must_wait(self, jobid: int, clause: str) -> None:
        """Raise Stuck if a job has got resources, or was denied them."""
        self.must_have_been_possible(jobid)
        if "alloc" in self.seen.events(jobid):
            text = f"job {format_fluid(jobid, 'f58')} was to wait, and has got resources"
            raise Stuck(text, clause)

    def started_in(self, order: Sequence[int], clause: str) -> None:
        """Raise Stuck unless these jobs have got their resources in this order."""
        found = [each for each in self.seen.starts if each in order]
        if found != list(order):
            expected, came = (", ".join(format_fluid(e, "f58") for e in s) for s in (order, found))
            raise Stuck(f"jobs got resources in the order {came}; expected {expected}", clause)

    # --- jobs

    def now(self) -> float:
        """Return the time of the instance, in seconds since the Unix epoch."""
        return self._handle.now()

    async def submit(self, *command: str, urgency: int = URGENCY_DEFAULT, **shape: Any) -> int:
        """Submit a job and return its id; see `_jobspec`."""
        (jobid,) = await self._submit([_jobspec(command, **shape)], urgency)
        return jobid

    async def submit_from(self, guest: Handle, **shape: Any) -> int:
        """Submit a simulated job as a guest does, and return its id."""
        (jobid,) = await self._submit([_jobspec((), **shape)], handle=guest)
        return jobid

    async def submit_all(self, count: int, **shape: Any) -> list[int]:
        """Submit equal simulated jobs at once, as `submit` does, and return their ids in order."""
        return await self._submit([_jobspec((), **shape)] * count)

    async def refused(self, topic: str, handle: Handle | None = None, **payload: Any) -> None:
        """Send a request that the program has to refuse. Raises Stuck."""
        try:
            await self.call(topic, payload, handle)
        except FluxError:
            return
        except Stuck as stuck:
            raise Stuck(str(stuck), REFUSED) from None
        raise Stuck(f"{topic} {payload} was not refused", REFUSED)

    async def rejected(self, clause: str, **shape: Any) -> None:
        """Submit a job that has to be rejected. Raises Stuck."""
        try:
            jobid = await self.submit(**shape)
        except FluxError:
            return
        raise Stuck(f"job {format_fluid(jobid, 'f58')} was not rejected", clause)

    async def _submit(
        self,
        jobspecs: Sequence[Mapping[str, Any]],
        urgency: int = URGENCY_DEFAULT,
        handle: Handle | None = None,
    ) -> list[int]:
        found: list[int] = []
        # a job that can never run is to come to the scheduler, even to one that ingest could ask
        flags = 0 if handle else JobFlag.NOVALIDATE * self.edition.first_flag
        payloads = [self.submission(each, urgency, flags) for each in jobspecs]
        with self.deadline():
            async with AsyncExitStack() as opened:
                answers = [
                    await opened.enter_async_context(
                        (handle or self._handle).stream(topics.INGEST_SUBMIT, each, Flag.NONE)
                    )
                    for each in payloads
                ]
                found += [int((await anext(each))["id"]) for each in answers]
            self.jobs += found
            return found
        raise Stuck(f"no answer to {topics.INGEST_SUBMIT} within {self.deadline_s:g} s")

    async def remove(self, module: str) -> None:
        """End the scheduler or the execution service, a module."""
        await self.call(topics.MODULE_REMOVE, {"name": module})

    async def load(self, module: str) -> None:
        """Load a module again that was removed, and wait until it serves. Raises Stuck."""
        await self._until_it_serves(topics.MODULE_LOAD, module)

    async def reload(self, module: str) -> None:
        """End a module and load it again, and wait until it serves. Raises Stuck."""
        await self._until_it_serves(topics.MODULE_RELOAD, module)

    async def _until_it_serves(self, how: str, module: str) -> None:
        topic = self.first_answer_to(module)
        before = self.seen.answered[topic]
        await self.call(how, {"name": module})
        await self.until(f"answer to {topic}", lambda: self.seen.answered[topic] > before)

    @staticmethod
    def first_answer_to(module: str) -> str:
        """Return the topic of the request by whose answer a module serves."""
        return topics.EXEC_HELLO if module == topics.JOB_EXEC else topics.SCHED_READY

    def submission(self, jobspec: Mapping[str, Any], urgency: int, flags: int) -> dict[str, Any]:
        """Return the payload of a submission."""
        return {"jobspec": jobspec, "urgency": urgency, "flags": flags}

    async def cancel(self, jobid: int) -> None:
        """Cancel a job, unless it is inactive already."""
        self.none_is_harmed()
        self.touched.add(jobid)
        payload = {"id": jobid, "severity": 0, "type": "cancel"}
        try:
            await self.call(topics.JOB_RAISE, payload)
        except FluxError:
            if "clean" not in self.seen.events(jobid):
                raise

    async def call(
        self, topic: str, payload: Payload, handle: Handle | None = None
    ) -> dict[str, Any]:
        """Send a request and return the response. Raises FluxError and Stuck.

        It comes from the owner, or from another client of the exercise.
        """
        with self.deadline():
            found: dict[str, Any] = await (handle or self._handle).call(topic, payload)
            return found
        raise Stuck(f"no answer to {topic} within {self.deadline_s:g} s")


def _jobspec(
    command: Sequence[str],
    run_s: float = 0.05,
    constraints: Mapping[str, Any] | None = None,
    more: Mapping[str, object] | None = None,
    cwd: str = "/",
    **shape: Any,
) -> dict[str, Any]:
    """Return a jobspec; `shape` has arguments of `Jobspec.from_command`, such as nnodes.

    A job without a command is simulated, and runs for `run_s` seconds. `more` has attributes with
    dotted keys.
    """
    attributes: dict[str, object] = {} if command else {RUN: run_s}
    attributes |= more or {}
    if constraints is not None:
        attributes["system.constraints"] = constraints
    words = list(command) or ["true"]
    return dict(Jobspec.from_command(words, cwd=cwd, attributes=attributes, **shape).to_json())


async def many(stage: Stage, count: int, **shape: Any) -> list[int]:
    """Submit `count` jobs of the same `shape`, as in `Stage.submit`, and return their ids."""
    return await stage.submit_all(count, **shape)


async def all_have(stage: Stage, jobids: Iterable[int], event: str, clause: str = "") -> None:
    """Wait until each job has the event."""
    for jobid in jobids:
        await stage.event(jobid, event, clause)


async def resources_of(stage: Stage, jobid: int) -> ResourceSet:
    """Return what a job has got, from the kvs."""
    found = await stage.call(topics.KVS_LOOKUP, flux_kvs.look_up(Lookup(job_key(jobid, "R"))))
    return parse_r(flux_kvs.value_of(found))
