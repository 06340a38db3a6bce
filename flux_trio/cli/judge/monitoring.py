"""A monitor of a running instance, in a process of its own.

Judging a message costs more than handling it: in the instance's own thread, judging would slow the
instance down several times. So the records go through a pipe to the monitor, and the violations
come back as entries of the log, possibly some time later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from fcntl import F_SETPIPE_SZ, fcntl
from subprocess import PIPE
from typing import Final

import trio

from flux_trio.cli.judge.monitor_process import encode_records
from flux_trio.messages import Level
from flux_trio.process.console import own_command
from flux_trio.process.local import reap
from flux_trio.trace import Record

WAITING_BYTES_MAX: Final = 1 << 28
"""Bytes that may wait for the monitor. A slower monitor is given up, with an error in the log."""

BATCH: Final = 256
"""Records that are encoded at once; one by one takes twice the time."""

GATHER_S: Final = 0.02
"""Seconds that records may wait, to be written together with later ones."""

PIPE_BYTES: Final = 1 << 20
"""Bytes that the pipe holds if the system allows it, so that the instance seldom waits for room."""

FINISH_S_MAX: Final = 60.0
"""Seconds that the monitor may go on after the instance has ended."""

COMMAND: Final = own_command("flux_trio.cli.judge.monitor_process")
NAME: Final = "monitor"

Report = Callable[[int, str, str], None]
"""Takes level, party and text, as `Instance.write_log` does."""


class Monitoring:
    """The pipe to the monitor; `append` is a sink of the trace.

    `report` writes entries of the log; entries that come before it is set are kept for it.
    """

    def __init__(self, waiting_bytes_max: int = WAITING_BYTES_MAX) -> None:
        self._max = waiting_bytes_max
        self.report: Report | None = None
        self._unreported: list[str] = []
        self._records: list[Record] = []  # not encoded yet, at most a batch
        self._since = 0  # the place of the first record
        self._frames: list[bytes] = []
        self._size = 0
        self._wake = trio.Event()
        self._is_open = True
        self.finished = trio.Event()  # set when all violations are reported

    def append(self, record: Record) -> None:
        """Pass a record to the monitor; a Sink."""
        if not self._is_open:
            return
        if not self._since:
            self._since = max(record.n, 1)
        if not self._records:
            self._wake.set()
        self._records.append(record)
        if len(self._records) == BATCH:
            self._encode()

    def _encode(self) -> None:
        records, self._records = self._records, []
        if not records:
            return
        frame = encode_records(records, self._since)
        self._frames.append(frame)
        self._size += len(frame)
        if self._size > self._max:
            n = records[-1].n
            self.give_up(f"is too slow for the instance and was given up at record {n}")

    def give_up(self, why: str) -> None:
        """Stop passing records, and log why."""
        if self._is_open:
            self._is_open = False
            self._records.clear()
            self._frames.clear()
            self.say(f"the monitor {why}")

    def say(self, text: str) -> None:
        if self.report is None:
            self._unreported.append(text)
        else:
            self.report(Level.ERR, NAME, text)

    def report_to(self, report: Report) -> None:
        """Write the entries so far, and all later ones, with `report`."""
        self.report = report
        unreported, self._unreported = self._unreported, []
        for text in unreported:
            self.say(text)

    def close(self) -> None:
        """End the stream of records."""
        self._is_open = False
        self._wake.set()

    async def send(self, pipe: trio.abc.SendStream) -> None:
        """Write the records to the pipe until `close`."""
        async with pipe:
            while self._records or self._frames or self._is_open:
                await self._wake.wait()
                if self._is_open:
                    await trio.sleep(GATHER_S)
                    self._wake = trio.Event()
                self._encode()
                frames, self._frames, self._size = self._frames, [], 0
                try:
                    await pipe.send_all(b"".join(frames))
                except trio.BrokenResourceError:
                    return  # `receive` reports that the monitor has ended

    async def receive(self, pipe: trio.abc.ReceiveStream) -> None:
        """Log each line that the monitor writes, until it ends."""
        rest = b""
        async with pipe:
            async for chunk in pipe:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self.say(line.decode())
        self.give_up("has ended by itself")
        self.finished.set()


def _enlarge(pipe: trio.abc.SendStream) -> None:
    """Set the pipe's size to PIPE_BYTES, unless the user's limit for pipes is reached."""
    assert isinstance(pipe, trio.lowlevel.FdStream)
    with suppress(OSError):
        fcntl(pipe.fileno(), F_SETPIPE_SZ, PIPE_BYTES)


@asynccontextmanager
async def open_monitor(edition: str) -> AsyncIterator[Monitoring]:
    """Run a monitor in this block; then wait at most FINISH_S_MAX until it has judged the rest.

    The instance speaks `edition`.
    """
    monitoring = Monitoring()
    process = await trio.lowlevel.open_process([*COMMAND, edition], stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    _enlarge(process.stdin)
    assert process.stdout is not None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(monitoring.send, process.stdin)
            nursery.start_soon(monitoring.receive, process.stdout)
            try:
                yield monitoring
            finally:
                monitoring.close()
                with trio.move_on_after(FINISH_S_MAX, shield=True):
                    await monitoring.finished.wait()
                nursery.cancel_scope.cancel()
    finally:
        process.kill()
        await reap(process)
