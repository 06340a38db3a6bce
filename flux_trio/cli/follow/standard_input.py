"""The command's standard input, sent to the job that it follows, as fast as the tasks read it.

A terminal is not read, because reading would stop a command in the background. /dev/null and a
closed standard input are not read either: the job's input is then empty, or waits for another
writer.
"""

from __future__ import annotations

import base64
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from flux_trio.cli.terminal.errors import complain
from flux_trio.messages import Errno, FluxError, topics

if TYPE_CHECKING:
    from flux_trio.client import Client

CHUNK_BYTES_MAX: Final = 1 << 16  # per request to job-exec.input
END_S: Final = 1.0  # the end of a job is known within this time


def input_to_forward() -> int | None:
    """Return the descriptor of standard input, or None if it is not sent to the job."""
    try:
        descriptor = sys.stdin.fileno()
        found = os.fstat(descriptor)
    except OSError:  # there is no file behind it, or no longer
        return None
    is_null = stat.S_ISCHR(found.st_mode) and found.st_rdev == Path(os.devnull).stat().st_rdev
    return None if is_null or os.isatty(descriptor) else descriptor


class StandardInput:
    """Sends the data read from `descriptor` to a job that has started."""

    def __init__(self, client: Client, jobid: int, descriptor: int) -> None:
        self._client = client
        self._id = jobid
        self._descriptor = descriptor
        kind = os.fstat(descriptor).st_mode
        self._may_wait = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        """Send until end of file, until no task reads, or until `stop`; print errors.

        If the job takes no input, nothing is read. Raises ConnectionLost.
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
        """End `run`: the job is over."""
        self._scope.cancel()

    async def _complain(self, error: FluxError) -> None:
        await anyio.sleep(END_S)  # if the job ends meanwhile, its end is the reason
        complain(f"the input ends here: {error}")

    async def _read(self) -> bytes:
        """Return the next bytes; b"" at the end, and after an error, which is printed."""
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
