"""The client for programs without async code: each call waits, in the thread that makes it.

    with connect() as client:
        job = client.submit(command_jobspec(["hostname"], ntasks=4))
        for piece in job.output():
            ...

An event loop of its own runs in another thread, and owns the connection.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from flux_trio.client.client import Client, open_client
from flux_trio.client.find import find_instance
from flux_trio.client.jobs import Job, Piece, Result
from flux_trio.formats import Event, Jobspec
from flux_trio.messages import Payload

T = TypeVar("T")


@contextmanager
def connect(uri: str | None = None, token: str = "") -> Iterator[BlockingClient]:
    """Yield a client of the instance at `uri`, connected during the block.

    Without `uri` the instance is found as commands find it: by FLUX_TRIO_URI, FLUX_TRIO_STATEDIR or
    the default state directory. Raises NoInstance and AccessDenied.
    """
    address = find_instance(os.environ) if uri is None else (uri, token)
    with (
        start_blocking_portal(backend="asyncio") as portal,
        portal.wrap_async_context_manager(open_client(*address)) as client,
    ):
        yield BlockingClient(portal, client)


class BlockingClient:
    """A `Client` whose calls wait; any number of threads may use it. They raise what its raise."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal = portal
        self._client = client

    def call(self, topic: str, payload: Payload = None) -> dict[str, Any]:
        """Send a request; return the payload of its response."""
        return self._portal.call(self._client.call, topic, payload)

    def submit(
        self, jobspec: Jobspec | dict[str, Any], urgency: int = 16, flags: int = 0
    ) -> BlockingJob:
        """Submit a jobspec; return the job when it is durable."""
        job = self._portal.call(self._client.submit, jobspec, urgency, flags)
        return BlockingJob(self._portal, job)

    def job(self, jobid: int | str) -> BlockingJob:
        """Return a job by its id, in any form of RFC 19."""
        return BlockingJob(self._portal, self._client.job(jobid))

    def jobs(self, **filters: Any) -> list[dict[str, Any]]:
        """Return what job-list knows of the jobs that `filters` select; see `Client.jobs`."""
        return self._portal.call(lambda: self._client.jobs(**filters))


class BlockingJob:
    """A `Job` whose calls wait."""

    def __init__(self, portal: BlockingPortal, job: Job) -> None:
        self._portal = portal
        self._job = job
        self.id = job.id

    def __str__(self) -> str:
        return str(self._job)

    def __repr__(self) -> str:
        return repr(self._job)

    def state(self) -> str:
        """Return the state: DEPEND, PRIORITY, SCHED, RUN, CLEANUP or INACTIVE."""
        return self._portal.call(self._job.state)

    def info(self) -> dict[str, Any]:
        """Return what job-list knows of it."""
        return self._portal.call(self._job.info)

    def wait(self) -> Result:
        """Wait until the job is over; return how it ended."""
        result: Result = self._portal.call(self._job.wait)
        return result

    def result(self) -> int:
        """Wait until the job is over; return its exit code. Raises JobFailed if it has none."""
        return self._portal.call(self._job.result)

    def events(self, path: str = "eventlog") -> Iterator[Event]:
        """Yield the events of the job from the first to the last."""
        return self._each(self._job.events(path))

    def output(self) -> Iterator[Piece]:
        """Yield what the tasks write, from the first byte to the last."""
        return self._each(self._job.output())

    def cancel(self, note: str = "") -> None:
        """Raise a fatal exception, which ends the job."""
        self._portal.call(self._job.cancel, note)

    def kill(self, signum: int = 15) -> None:
        """Send a signal to all tasks."""
        self._portal.call(self._job.kill, signum)

    def _each(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        try:
            while True:
                try:
                    yield self._portal.call(items.__anext__)
                except StopAsyncIteration:
                    return
        finally:
            self._portal.call(items.aclose)
