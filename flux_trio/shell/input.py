"""Standard input of the shell host's tasks: a pipe to each, written to when a client feeds the job.

What is fed goes to every task of the job. It is taken once all of them have room for it, so the
slowest one that still has its end open sets the pace; a task that has ended holds up nobody. Pipes
end with the host that made them: the tasks of a host that was killed read the end of their input.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import trio

from flux_trio.shell.protocol import Fed, Feed

if TYPE_CHECKING:
    from collections.abc import Iterator

# Each takes a descriptor of the host, which often may have 1024 and needs some for all else.
PIPES_MAX: Final = 512
NO_PIPES: Final = (
    f"the shell host has no pipes to its tasks: it was killed meanwhile, or had {PIPES_MAX} already"
)


class _Pipes:
    """Those of one job, by task, that are open."""

    __slots__ = ("lock", "streams")

    def __init__(self) -> None:
        self.lock = trio.Lock()  # what two clients feed must not mix within a write
        self.streams: dict[int, trio.lowlevel.FdStream] = {}

    async def write(self, taskid: int, data: bytes) -> None:
        """Wait until the task has taken `data`, or takes no more."""
        try:
            await self.streams[taskid].send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.close(taskid)

    def close(self, taskid: int) -> None:
        """The task reads the end."""
        stream = self.streams.pop(taskid, None)
        if stream is not None:
            stream.close()

    def close_all(self) -> None:
        """So do all."""
        for taskid in list(self.streams):
            self.close(taskid)


class JobInputs:
    """The pipes of all jobs that run."""

    def __init__(self) -> None:
        self._jobs: dict[int, _Pipes] = {}

    def has_room(self, ntasks: int) -> bool:
        """Whether there may be so many pipes more."""
        return sum(len(pipes.streams) for pipes in self._jobs.values()) + ntasks <= PIPES_MAX

    @contextmanager
    def pipe(self, jobid: int, taskid: int, *, wanted: bool) -> Iterator[int | None]:
        """The end to read from, until the block is left; None if unwanted. OSError.

        What the block raises is why the task was not launched: its pipe is closed.
        """
        if not wanted:
            yield None
            return
        reader, writer = os.pipe2(os.O_CLOEXEC)
        pipes = self._jobs.setdefault(jobid, _Pipes())
        pipes.streams[taskid] = trio.lowlevel.FdStream(writer)
        try:
            yield reader
        except BaseException:
            pipes.close(taskid)
            raise
        finally:
            os.close(reader)

    async def feed(self, request: Feed) -> Fed:
        """Write to the tasks of a job, each at its own pace; returns when all have what came."""
        pipes = self._jobs.get(request.id)
        if pipes is None:
            return Fed(request.id, open=False, refusal=NO_PIPES)
        async with pipes.lock:
            if request.data:
                async with trio.open_nursery() as nursery:
                    for taskid in list(pipes.streams):
                        nursery.start_soon(pipes.write, taskid, request.data)
            if request.eof:
                pipes.close_all()
        return Fed(request.id, open=bool(pipes.streams))

    def end(self, jobid: int) -> None:
        """Nothing of the job runs any more: whoever feeds it is told."""
        pipes = self._jobs.pop(jobid, None)
        if pipes is not None:
            pipes.close_all()
