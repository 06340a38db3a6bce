"""The file of a tap's trace: a new one, or that of an earlier load, with which it goes on."""

from __future__ import annotations

import fcntl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import IO, Final

import trio

from flux_trio.attach.tap.account import NOTHING_LEFT, PARTY, UnendedModule
from flux_trio.formats import FormatError, Words
from flux_trio.process.private import making_private
from flux_trio.trace import JsonLines, Kind, Trace
from flux_trio.trace.record import records_from_json

LOCK_TRIES: Final = 50
"""The tap of the load before may still have the file, until its process has ended."""
LOCK_WAIT_S: Final = 0.1

_EXPECTED: Final = f"an empty file, or a trace of {PARTY}"


@asynccontextmanager
async def opened_trace(path: Path) -> AsyncIterator[tuple[Trace, JsonLines, UnendedModule]]:
    """Yield a trace that is written to the file, its sink, and what a killed tap has left there.

    Raises OSError; FormatError if the file has something else, or another tap writes it.
    """
    with open(path, "a+b", opener=making_private) as file:  # noqa: ASYNC230 - nothing runs yet
        await _lock(file, path)
        place, left = _read(file, path)
        trace = Trace(time.time, place)

        def write(data: bytes) -> None:
            file.write(data)
            file.flush()

        with closing(JsonLines(write)) as lines:
            trace.add_sink(lines.append)
            yield trace, lines, left


async def _lock(file: IO[bytes], path: Path) -> None:
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await trio.sleep(LOCK_WAIT_S)
        else:
            return
    raise FormatError(_EXPECTED, Words("one that another process writes"), str(path))


def _read(file: IO[bytes], path: Path) -> tuple[int, UnendedModule]:
    """Return the place of the last record in the file, 0 in an empty one, and what is left there.

    What a crash has left of a last line is cut off.
    """
    file.seek(0)
    place, end, left = 0, 0, NOTHING_LEFT
    for line in file:
        if place and not line.endswith(b"\n"):
            break
        try:
            records = records_from_json(line)
        except FormatError:
            raise FormatError(_EXPECTED, line, str(path)) from None
        if not place and records[0].kind != Kind.SOURCE:
            raise FormatError(_EXPECTED, line, str(path))
        for record in records:
            left = left.after(record)
        place, end = records[-1].n, end + len(line)
    file.truncate(end)
    return place, left
