"""Standard input of the shell host's tasks: a pipe to each task.

Input of a client goes to every task of the job, or to those that it names. `feed` returns when they
all have taken it, so the slowest task that still reads sets the pace. The pipes end with the host:
if a host is killed, its tasks read end of file.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import trio

from flux_trio.shell.protocol import Fed, Feed

if TYPE_CHECKING:
    from collections.abc import Iterator

# Each pipe takes a descriptor of the host; a usual limit is 1024, and the host needs others too.
PIPES_MAX: Final = 512
NO_PIPES: Final = (
    f"the shell host has no pipes to the job's tasks: it was restarted, or has {PIPES_MAX} pipes"
)


class _Pipes:
    """The open pipes of one job, by task."""

    __slots__ = ("lock", "streams")

    def __init__(self) -> None:
        self.lock = trio.Lock()  # the writes of two clients must not mix
        self.streams: dict[int, trio.lowlevel.FdStream] = {}

    async def write(self, taskid: int, data: bytes) -> None:
        """Wait until the task has read `data`, or has closed its end."""
        try:
            await self.streams[taskid].send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.close(taskid)

    def close(self, taskid: int) -> None:
        """Close the pipe of a task, which then reads end of file."""
        stream = self.streams.pop(taskid, None)
        if stream is not None:
            stream.close()

    def close_all(self) -> None:
        for taskid in list(self.streams):
            self.close(taskid)


class JobInputs:
    """The pipes of all running jobs."""

    def __init__(self) -> None:
        self._jobs: dict[int, _Pipes] = {}

    def has_room(self, ntasks: int) -> bool:
        """Return whether `ntasks` more pipes are within PIPES_MAX."""
        return sum(len(pipes.streams) for pipes in self._jobs.values()) + ntasks <= PIPES_MAX

    @contextmanager
    def pipe(self, jobid: int, taskid: int, *, wanted: bool) -> Iterator[int | None]:
        """Yield the read end of a new pipe, closed after the block; None if not wanted.

        If the block raises, the task was not launched, and the write end is closed too. Raises
        OSError.
        """
        if not wanted:
            yield None
            return
        reader, writer = os.pipe2(os.O_CLOEXEC)
        pipes = self._jobs.setdefault(jobid, _Pipes())
        pipes.streams[taskid] = trio.lowlevel.FdStream(writer)
        with ExitStack() as undo:
            undo.callback(pipes.close, taskid)
            try:
                yield reader
            finally:
                os.close(reader)
            undo.pop_all()

    async def feed(self, request: Feed) -> Fed:
        """Write to the tasks of a job, each at its own pace; return when all have the data."""
        pipes = self._jobs.get(request.id)
        if pipes is None:
            return Fed(request.id, open=False, refusal=NO_PIPES)
        async with pipes.lock:
            tasks = pipes.streams.keys() & (request.tasks or pipes.streams.keys())
            if request.data:
                async with trio.open_nursery() as nursery:
                    for taskid in tasks:
                        nursery.start_soon(pipes.write, taskid, request.data)
            if request.eof:
                for taskid in tasks:
                    pipes.close(taskid)
        return Fed(request.id, open=bool(pipes.streams))

    def end(self, jobid: int) -> None:
        """Close the pipes of a job that has ended; a waiting `feed` returns."""
        pipes = self._jobs.pop(jobid, None)
        if pipes is not None:
            pipes.close_all()
