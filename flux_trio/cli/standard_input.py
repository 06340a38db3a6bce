"""The command's standard input, sent to the job it follows: read as fast as the tasks take it.

A terminal is not read, so that a job in the background is never stopped for it; nor are /dev/null
and a standard input that is closed: then the job's has nothing in it, or waits for another writer.
"""

from __future__ import annotations

import base64
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from flux_trio.cli.errors import complain
from flux_trio.messages import Errno, FluxError, topics

if TYPE_CHECKING:
    from flux_trio.client import Client

CHUNK_BYTES_MAX: Final = 1 << 16  # what job-exec.input takes at once
END_S: Final = 1.0  # within it a job that has ended is known to have


def input_to_forward() -> int | None:
    """The descriptor of standard input; None if there is nothing in it to send to a job.

    To be asked before anything is opened, which would take the place of one that is closed.
    """
    if sys.stdin is None:  # closed
        return None
    try:
        descriptor = sys.stdin.fileno()
        found = os.fstat(descriptor)
    except OSError:  # there is no file behind it, or no longer
        return None
    is_null = stat.S_ISCHR(found.st_mode) and found.st_rdev == Path(os.devnull).stat().st_rdev
    return None if is_null or os.isatty(descriptor) else descriptor


class StandardInput:
    """Sends what is read from `descriptor` to a job that has started."""

    def __init__(self, client: Client, jobid: int, descriptor: int) -> None:
        self._client = client
        self._id = jobid
        self._descriptor = descriptor
        kind = os.fstat(descriptor).st_mode
        self._may_wait = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        """Send until its end, until no task reads it or until `stop`; what hinders it is told.

        Nothing is read for a job that takes no input. ConnectionLost.
        """
        with self._scope:
            try:
                is_open = await self._write(b"", eof=False)
            except FluxError as error:
                if error.errnum != Errno.EINVAL:
                    await self._complain(error)
                return
            try:
                while is_open:
                    data = await self._read()
                    is_open = await self._write(data, eof=not data)
            except FluxError as error:
                await self._complain(error)

    def stop(self) -> None:
        """The job is over."""
        self._scope.cancel()

    async def _complain(self, error: FluxError) -> None:
        await anyio.sleep(END_S)  # if the job ends meanwhile, that is why
        complain(f"the input ends here: {error}")

    async def _read(self) -> bytes:
        """The next bytes, none at the end or where it cannot be read."""
        try:
            if self._may_wait:
                await anyio.wait_readable(self._descriptor)
            return os.read(self._descriptor, CHUNK_BYTES_MAX)
        except OSError as error:
            complain(f"standard input: {error.strerror}")
            return b""

    async def _write(self, data: bytes, *, eof: bool) -> bool:
        text = base64.b64encode(data).decode()
        payload = {"id": self._id, "data": text, "eof": eof}
        answer = await self._client.call(topics.EXEC_INPUT, payload)
        return bool(answer["open"])
