"""What the acts of an exercise use: jobs, the program, and waiting with a deadline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import trio

from flux_trio.broker import Handle
from flux_trio.editions.rfc27 import AllocType
from flux_trio.editions.rfc32 import StartType
from flux_trio.formats import Jobspec, format_fluid
from flux_trio.lab.exercise.program import Program
from flux_trio.messages import FluxError, Message, Request, Response, topics
from flux_trio.trace import Kind, Record

RUN: Final = "system.exec.test.run_duration"
"""The attribute with the seconds that a job pretends to run where execution is simulated."""


_NAMED_MAX: Final = 3  # jobs that a cause names

LOOK_S: Final = 0.2
"""How often, in seconds, an act that waits looks whether the program still runs."""


Visit = Callable[[str], AbstractAsyncContextManager[Handle]]
"""A function that opens a further client of the instance."""

_LAST: Final[Mapping[str, Callable[[Mapping[str, Any]], bool]]] = {
    topics.SCHED_ALLOC: lambda answer: answer.get("type") != AllocType.ANNOTATE,
    topics.SCHED_FREE: lambda _answer: True,
    f"{topics.JOB_EXEC}.{topics.START_METHOD}": lambda answer: (
        answer.get("type") == StartType.RELEASE and answer.get("data", {}).get("final") is True
    ),
}
"""Requests about a job to the program, and whether a response is the last one to them."""


class Stuck(Exception):
    """Something did not come within the deadline; the text says what."""


class Stage:
    """An instance and the program that serves it.

    `handle` is a client with the owner's rights; `visit` opens another one with a name. The program
    serves once its request `ready` is answered with a success. `deadline_s` are the seconds that it
    has for each thing that an act waits for.
    """

    def __init__(
        self, handle: Handle, program: Program, ready: str, visit: Visit, deadline_s: float
    ) -> None:
        self.program = program
        self.visit = visit
        self._ready = ready
        self.deadline_s = deadline_s
        self.jobs: list[int] = []
        """The ids of all jobs, in the order of submission."""
        self.stand_ins: set[str] = set()
        """The parties that stood in for a service; they refuse what the service may not refuse."""
        self._handle = handle
        self._events: dict[int, list[str]] = {}
        self._asked: set[tuple[str, object]] = set()  # topics and job ids of requests
        self._answered: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()  # requests that were received, by topic
        self._open: dict[int, dict[str, None]] = {}  # by job: requests without their last answer
        self._news = trio.Event()

    def observe(self, record: Record) -> None:
        """Take the next record of the trace."""
        if record.kind == Kind.EVENT and record.data is not None:
            self._events.setdefault(record.data["id"], []).append(record.data["name"])
        elif record.kind == Kind.SEND:
            self._sent(record.message)
        elif isinstance(record.message, Request):
            self._taken[record.message.topic] += 1
        self._news.set()

    def _sent(self, message: Message | None) -> None:
        match message:
            case Request(topic, {"id": jobid}):
                self._asked.add((topic, jobid))
                if topic in _LAST:
                    self._open.setdefault(int(jobid), {})[topic] = None
            case Response(topic, payload, errnum=0):
                self._answered[topic] += 1
                if topic in _LAST and isinstance(payload, dict) and _LAST[topic](payload):
                    self._open.get(payload.get("id", 0), {}).pop(topic, None)

    # --- waiting

    async def until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait until `is_so()` is true; it is called after each record. Raises Stuck."""
        with trio.move_on_after(self.deadline_s):
            while not is_so():
                if self.program.returncode is not None:
                    raise Stuck(f"{what}: the program has ended, with {self.program.returncode}")
                self._news = trio.Event()
                with trio.move_on_after(LOOK_S):
                    await self._news.wait()
            return
        raise Stuck(f"{what}: not within {self.deadline_s:g} s")

    async def serve(self) -> None:
        """Start the program and wait until it serves. Raises ProgramNotStarted and Stuck."""
        before = self.nready
        await self.program.start()
        await self.ready(before)

    @property
    def nready(self) -> int:
        """The number of times that the program has begun to serve."""
        return self._answered[self._ready]

    async def ready(self, before: int) -> None:
        """Wait until the program has begun to serve more than `before` times. Raises Stuck."""
        await self.until(f"{self._ready} of the program", lambda: self.nready > before)

    async def event(self, jobid: int, name: str) -> None:
        """Wait until a job has the event `name`. Raises Stuck, which names what is not answered."""
        what = f"event {name} of job {format_fluid(jobid, 'f58')}"
        try:
            await self.until(what, lambda: name in self.events(jobid))
        except Stuck as stuck:
            raise Stuck(f"{stuck}{self._cause(jobid)}") from None

    def _cause(self, jobid: int) -> str:
        """Return what the program has not answered of a job, or of the jobs before it."""
        unanswered = " and ".join(self._open.get(jobid, ()))
        cause = f"; the program has not answered {unanswered} of this job" if unanswered else ""
        unfreed = [each for each, asked in self._open.items() if topics.SCHED_FREE in asked]
        if unfreed and topics.SCHED_ALLOC in self._open.get(jobid, ()):
            names = ", ".join(format_fluid(each, "f58") for each in unfreed[:_NAMED_MAX])
            cause += f", nor {topics.SCHED_FREE} of {len(unfreed)} others ({names})"
        return cause

    async def end_program(self, service: str) -> None:
        """End the program, and wait until `service` knows that it has gone. Raises Stuck."""
        topic = topics.disconnect_of(service)
        before = self._taken[topic]
        await self.program.end()
        await self.until(f"{topic} of the program", lambda: self._taken[topic] > before)

    async def left(self, refused: str) -> None:
        """Wait until the program has ended, since `refused` was refused. Raises Stuck.

        Then nothing of it runs any more.
        """
        with trio.move_on_after(self.deadline_s) as waiting:
            await self.program.wait()
        await self.program.kill()  # or the processes that it has left
        if waiting.cancelled_caught:
            text = f"{refused} was refused, and the program runs on for {self.deadline_s:g} s"
            raise Stuck(text)

    async def asked(self, topic: str, jobid: int) -> None:
        """Wait until the program has been asked something about a job. Raises Stuck."""
        what = f"{topic} of job {format_fluid(jobid, 'f58')}"
        await self.until(what, lambda: (topic, jobid) in self._asked)

    async def at_rest(self) -> None:
        """Wait until every job is INACTIVE. Raises Stuck."""
        for jobid in self.jobs:
            await self.event(jobid, "clean")

    def events(self, jobid: int) -> list[str]:
        """Return the names of a job's events so far."""
        return self._events.get(jobid, [])

    # --- jobs

    async def submit(
        self, *command: str, run_s: float = 0.05, exclusive: bool = False, **shape: Any
    ) -> int:
        """Submit a job and return its id.

        `shape` has arguments of `Jobspec.from_command` (nnodes, ntasks, duration). Where execution
        is simulated the job runs for `run_s` seconds.
        """
        jobspec = Jobspec.from_command(
            list(command) or ["true"],
            cwd="/",
            attributes={RUN: run_s},
            exclusive=exclusive,
            **shape,
        ).to_json()
        found = await self.call(topics.INGEST_SUBMIT, {"jobspec": jobspec})
        self.jobs.append(found["id"])
        return int(found["id"])

    async def cancel(self, jobid: int) -> None:
        """Cancel a job, unless it is inactive already."""
        payload = {"id": jobid, "severity": 0, "type": "cancel"}
        try:
            await self.call(topics.JOB_RAISE, payload)
        except FluxError:
            if "clean" not in self.events(jobid):
                raise

    async def cancel_all(self) -> None:
        """Cancel every job that is not over, so that the next act begins with an idle machine.

        Nothing is waited for: the program may have ended, or not answer.
        """
        for jobid in self.jobs:
            if "clean" not in self.events(jobid):
                with suppress(FluxError, Stuck):
                    await self.cancel(jobid)
        self.jobs.clear()

    async def call(self, topic: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Send a request as the owner and return the response. Raises FluxError and Stuck."""
        with trio.move_on_after(self.deadline_s):
            return await self._handle.call(topic, payload)
        raise Stuck(f"no answer to {topic} within {self.deadline_s:g} s")


Play: TypeAlias = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that happens to the program: a title, and the function that does it.

    The function raises Stuck or FluxError. When it has returned, every job must come to its end.
    """

    title: str
    play: Play


async def many(stage: Stage, count: int, **shape: Any) -> list[int]:
    """Submit `count` jobs of the same `shape`, as in `Stage.submit`, and return their ids."""
    return [await stage.submit(**shape) for _ in range(count)]


async def all_have(stage: Stage, jobids: Iterable[int], event: str) -> None:
    """Wait until each job has the event."""
    for jobid in jobids:
        await stage.event(jobid, event)
