"""A job as a client sees it: how it goes on, what it writes, and how it ends."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio

from flux_trio.client.connection import Connection
from flux_trio.client.errors import ClientError
from flux_trio.client.find import TOKEN_VARIABLE, URI_VARIABLE
from flux_trio.client.responses import Queue
from flux_trio.formats import Event, Jobspec, format_fluid, is_utf8, parse_event
from flux_trio.messages import Errno, FluxError, topics
from flux_trio.process.exit_code import exit_code

# What knows the states and events of jobs is imported when it is needed: commands start quicker.

OUTPUT: Final = "guest.output"
RETRY_S: Final = 0.2  # while there is no service job-info
TRIES_MAX: Final = 25  # tries without output in between
NEVER_RAN: Final = 1  # exit code of a job without processes


class JobFailed(ClientError):
    """An exception ended a job; the text has its type and note."""


class Result(NamedTuple):
    """How a job ended."""

    status: int | None
    """The highest wait(2) status of its tasks; None if no process ended (RFC 21, finish)."""
    exception: dict[str, Any] | None
    """The context of its first fatal exception: type, severity, note; None without one."""

    @property
    def success(self) -> bool:
        """Return whether every task exited with 0, and nothing ended the job."""
        return self.status == 0 and self.exception is None

    @property
    def returncode(self) -> int:
        """Return the exit code as a shell shows it: 128+N after signal N, 1 if nothing ran."""
        if self.status is None:
            return NEVER_RAN
        return exit_code(self.status)

    def exit_code(self, job: str) -> int:
        """Return `returncode`. Raises JobFailed, which names the `job`, after an exception."""
        if self.status is None or self.exception is not None:
            raise JobFailed(f"job {job}: {self.text or 'it has no exit code'}")
        return self.returncode

    @property
    def text(self) -> str:
        """Return the exception as a text; "" without one."""
        if self.exception is None:
            return ""
        note = self.exception.get("note")
        return f"exception {self.exception['type']}{f': {note}' if note else ''}"


class Piece(NamedTuple):
    """A part of what a task has written."""

    stream: str
    """stdout or stderr."""
    rank: str
    """The task, as an idset."""
    data: bytes
    note: str | None = None
    """Why the output is not whole, if it is not."""


class Job:
    """A job of the instance that a client is connected to.

    Each call raises FluxError if the user may not do it or there is no such job, and
    ConnectionLost.
    """

    def __init__(self, client: Connection, jobid: int) -> None:
        self.id = jobid
        self._client = client

    def __str__(self) -> str:
        return format_fluid(self.id, "f58")

    def __repr__(self) -> str:
        return f"Job({self})"

    async def state(self) -> str:
        """Return the state: DEPEND, PRIORITY, SCHED, RUN, CLEANUP or INACTIVE."""
        from flux_trio.protocols import JobState

        return JobState((await self.info())["state"]).name or ""

    async def info(self) -> dict[str, Any]:
        """Return what job-list knows of it: state, times, nodelist, result and so on."""
        found: dict[str, Any] = (await self._client.call(topics.LIST_ID, {"id": self.id}))["job"]
        return found

    async def events(self, path: str = "eventlog") -> AsyncGenerator[Event, None]:
        """Yield the events of the job from the first, and new ones as they come, to the last.

        `path` names another eventlog, such as guest.exec.eventlog. To leave the loop earlier, put
        the iterator into `contextlib.aclosing`.
        """
        async with watch_eventlog(self._client, self.id, path) as responses:
            async for response in responses:
                yield parse_event(response["event"])

    async def wait(self, heard: Callable[[Event], object] = lambda _: None) -> Result:
        """Wait until the job is over; return how it ended. `heard` is called with each event."""
        from flux_trio.editions import rfc21
        from flux_trio.protocols import JobEvent

        status: int | None = None
        exception: dict[str, Any] | None = None
        async with aclosing(self.events()) as events:
            async for event in events:
                heard(event)
                context = dict(event.context or {})
                if event.name == JobEvent.FINISH:
                    status = int(context["status"])
                elif exception is None and rfc21.is_fatal(event.name, context):
                    exception = context
        return Result(status, exception)

    async def result(self) -> int:
        """Wait until the job is over; return its exit code as a shell shows it.

        Raises JobFailed if an exception ended it: it was canceled, its time was up, or it could
        never run.
        """
        return (await self.wait()).exit_code(str(self))

    async def output(self) -> AsyncGenerator[Piece, None]:
        """Yield what the tasks write, from the first byte to the last; nothing if none starts.

        To leave the loop earlier, put the iterator into `contextlib.aclosing`.
        """
        from flux_trio.protocols import JobEvent

        async with aclosing(self.events()) as events:
            async for event in events:
                if event.name == JobEvent.START:
                    break
            else:
                return
        async with aclosing(read_output(self._client, self.id)) as pieces:
            async for piece in pieces:
                yield piece

    async def cancel(self, note: str = "") -> None:
        """Raise a fatal exception, which ends the job."""
        reason = {"note": note} if note else {}
        payload = {"id": self.id, "type": "cancel", "severity": 0, **reason}
        await self._client.call(topics.JOB_RAISE, payload)

    async def kill(self, signum: int = 15) -> None:
        """Send a signal to all tasks."""
        await self._client.call(topics.JOB_KILL, {"id": self.id, "signum": signum})


def for_jobs(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process that its jobs get.

    A job does not inherit how the process reached the instance: a token is a secret, and a jobspec
    is stored and shown to every user who may see the job. A job finds its instance by
    FLUX_TRIO_STATEDIR. A variable that is not UTF-8 is left out, because a jobspec is text.
    """
    return {
        name: value
        for name, value in environ.items()
        if name not in (URI_VARIABLE, TOKEN_VARIABLE) and is_utf8(f"{name}{value}")
    }


def command_jobspec(command: Sequence[str], **shape: Any) -> Jobspec:
    """Return the jobspec of a command that runs here: in this directory, with this environment.

    `shape` has the other arguments of `Jobspec.from_command`: ntasks, cores_per_task, nnodes,
    duration (seconds), queue and so on.
    """
    here = {"cwd": str(Path.cwd()), "environment": for_jobs(os.environ)}
    return Jobspec.from_command(command, **here | shape)


def watch_eventlog(
    client: Connection, jobid: int, path: str = "eventlog", *, follow: bool = True
) -> AbstractAsyncContextManager[Queue[dict[str, Any]]]:
    """Open a stream of a job's events; the key `event` of each response is one line.

    Without `follow` the stream ends at the last event that is stored now. It raises FluxError.
    """
    wanted = {"id": jobid, "path": path, "follow": follow}
    return client.stream(
        topics.INFO_WATCH, wanted, cancel_topic=topics.INFO_WATCH_CANCEL, credit=True
    )


async def read_output(client: Connection, jobid: int) -> AsyncGenerator[Piece, None]:
    """Yield the output of a job that has started.

    A slow reader loses nothing: the instance sends more only after the output so far was read. If
    the service job-info is reloaded, the output goes on where it was. Raises FluxError.
    """
    seen: Counter[tuple[str, str]] = Counter()  # bytes by stream and task
    tries = 0
    while True:
        passed: Counter[tuple[str, str]] = Counter()
        try:
            async with watch_eventlog(client, jobid, OUTPUT) as responses:
                async for response in responses:
                    tries = 0
                    piece = _piece_of(jobid, response["event"])
                    if piece is None:
                        continue
                    key = piece.stream, piece.rank
                    new = piece.data[max(0, seen[key] - passed[key]) :]
                    passed[key] += len(piece.data)
                    seen[key] += len(new)
                    yield piece._replace(data=new)
            return
        except FluxError as error:
            tries += 1
            if error.errnum != Errno.ENOSYS or tries > TRIES_MAX:
                raise
        await anyio.sleep(RETRY_S)


async def list_jobs(
    client: Connection,
    wanted: dict[str, Any],
    limit: int,
    is_listed: Callable[[dict[str, Any]], bool] = lambda _: True,
) -> list[dict[str, Any]]:
    """Return the records of a job-list.list request that `is_listed` accepts, `limit` at most.

    0 is no limit. Raises FluxError.
    """
    found: list[dict[str, Any]] = []
    async with client.stream(
        topics.LIST_LIST, wanted, cancel_topic=topics.LIST_CANCEL, credit=True
    ) as pages:
        async for page in pages:
            found += filter(is_listed, page["jobs"])
            if limit and len(found) >= limit:
                break
    return found[:limit] if limit else found


def _piece_of(jobid: int, line: str) -> Piece | None:
    """Return what an event of RFC 24 has for a reader: output, or a message about it.

    Raises FluxError(EPROTO) for what is damaged.
    """
    from flux_trio.editions import rfc24

    try:
        event = parse_event(line)
        context = event.context or {}
        if event.name == rfc24.LOG:
            return Piece("stderr", "0", b"", rfc24.message_in(context).message)
        if event.name != rfc24.DATA or not rfc24.has_data(context):
            return None
        return Piece(*rfc24.place_in(context), rfc24.bytes_of(context))
    except ValueError as error:
        text = f"job {format_fluid(jobid, 'f58')}: output: {error}"
        raise FluxError(Errno.EPROTO, text) from None
