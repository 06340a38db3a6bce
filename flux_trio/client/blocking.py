"""The client for programs without async code: each call waits, in the thread that makes it.

    client = connect()
    job = client.submit(command_jobspec(["hostname"], ntasks=4))
    for piece in job.output():
        ...

An event loop of its own runs in another thread, and owns the connection.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, Self, TypeVar, TypeVarTuple

from flux_trio.client.client import Client, open_client
from flux_trio.client.errors import ConnectionLost, check_process
from flux_trio.client.find import find_instance
from flux_trio.client.jobs import Job, Piece, Result
from flux_trio.formats import Event, Jobspec
from flux_trio.messages import Payload
from flux_trio.process.loop_thread import LoopThread, run_asyncio

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


def connect(uri: str | None = None, token: str = "") -> BlockingClient:
    """Return a client of the instance at `uri`.

    It is connected until the end of a `with` block, until `close`, or until the program uses
    neither it nor its jobs any more.

    Without `uri` the instance is found as commands find it: by FLUX_TRIO_URI, FLUX_TRIO_STATEDIR or
    the default state directory. Raises NoInstance and AccessDenied.
    """
    return BlockingClient(*(find_instance(os.environ) if uri is None else (uri, token)))


class BlockingClient:
    """A `Client` whose calls wait; any number of threads may use it. They raise what its raise."""

    def __init__(self, uri: str, token: str) -> None:
        self._pid = os.getpid()
        self._loop = LoopThread("flux-trio client", lambda: open_client(uri, token), run_asyncio)
        self._client: Client = self._loop.start()
        self._end = weakref.finalize(self, _close, self._loop, self._pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection in order; a second call has no effect. Later calls raise."""
        self._end()

    def call(self, topic: str, payload: Payload = None) -> dict[str, Any]:
        """Send a request; return the payload of its response."""
        return self._wait(self._client.call, topic, payload)

    def submit(
        self, jobspec: Jobspec | dict[str, Any], urgency: int = 16, flags: int = 0
    ) -> BlockingJob:
        """Submit a jobspec; return the job when it is durable."""
        return BlockingJob(self, self._wait(self._client.submit, jobspec, urgency, flags))

    def job(self, jobid: int | str) -> BlockingJob:
        """Return a job by its id, in any form of RFC 19."""
        return BlockingJob(self, self._client.job(jobid))

    def jobs(self, **filters: Any) -> list[dict[str, Any]]:
        """Return what job-list knows of the jobs that `filters` select; see `Client.jobs`."""
        return self._wait(lambda: self._client.jobs(**filters))

    def _wait(self, function: Callable[[*Arguments], Awaitable[T]], *arguments: *Arguments) -> T:
        """Call `function` in the event loop, and wait for its result; by ctrl-C it is cancelled.

        Raises ConnectionLost if this client is closed, or was opened in another process.
        """
        check_process(self._pid)
        if not self._end.alive:
            raise ConnectionLost("this client is closed")
        future = self._loop.portal.start_task_soon(function, *arguments)
        try:
            return future.result()
        finally:
            future.cancel()  # without effect if it has ended


class BlockingJob:
    """A `Job` whose calls wait."""

    def __init__(self, client: BlockingClient, job: Job) -> None:
        self._client = client
        self._job = job
        self.id = job.id

    def __str__(self) -> str:
        return str(self._job)

    def __repr__(self) -> str:
        return repr(self._job)

    def state(self) -> str:
        """Return the state: DEPEND, PRIORITY, SCHED, RUN, CLEANUP or INACTIVE."""
        return self._client._wait(self._job.state)

    def info(self) -> dict[str, Any]:
        """Return what job-list knows of it."""
        return self._client._wait(self._job.info)

    def wait(self) -> Result:
        """Wait until the job is over; return how it ended."""
        result: Result = self._client._wait(self._job.wait)
        return result

    def result(self) -> int:
        """Wait until the job is over; return its exit code. Raises JobFailed if it has none."""
        return self._client._wait(self._job.result)

    def events(self, path: str = "eventlog") -> Iterator[Event]:
        """Yield the events of the job from the first to the last."""
        return self._each(self._job.events(path))

    def output(self) -> Iterator[Piece]:
        """Yield what the tasks write, from the first byte to the last."""
        return self._each(self._job.output())

    def cancel(self, note: str = "") -> None:
        """Raise a fatal exception, which ends the job."""
        self._client._wait(self._job.cancel, note)

    def kill(self, signum: int = 15) -> None:
        """Send a signal to all tasks."""
        self._client._wait(self._job.kill, signum)

    def _each(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        while True:
            try:
                item = self._client._wait(items.__anext__)  # what it raises has ended `items`
            except StopAsyncIteration:
                return
            with ExitStack() as undo:
                undo.callback(self._let_go, items)
                yield item
                undo.pop_all()

    def _let_go(self, items: AsyncGenerator[T, None]) -> None:
        with suppress(ConnectionLost):
            self._client._wait(items.aclose)


def _close(loop: LoopThread[Client], pid: int) -> None:
    """End a connection, perhaps in its own thread; a fork of the process `pid` has none."""
    if os.getpid() == pid:
        loop.stop()
