"""The output of jobs, from the execution service to the terminal, as bytes."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import IO, TYPE_CHECKING, TypeAlias

import anyio
import anyio.to_thread

from flux_trio.cli.terminal.errors import command_name, complain
from flux_trio.client.jobs import Piece, read_output
from flux_trio.formats import printable
from flux_trio.messages import FluxError

if TYPE_CHECKING:
    from flux_trio.client import Client

Sink: TypeAlias = Callable[[bytes], None]


@dataclass(frozen=True)
class Outputs:
    """The sinks of a job's two streams, and of lines about the job.

    `may_wait` is true if a sink may have to wait for its reader, for example a pager.
    """

    stdout: Sink
    stderr: Sink
    may_wait: bool = False
    _one_at_a_time: anyio.Lock = field(default_factory=anyio.Lock)

    async def write(self, write: Callable[[], None]) -> None:
        """Run `write`, which uses the sinks, without blocking the connection to the instance."""
        if self.may_wait:
            async with self._one_at_a_time:
                await anyio.to_thread.run_sync(write, abandon_on_cancel=True)
        else:
            write()

    def line(self, text: str) -> None:
        """Write a line about the job, for example its id, to standard output."""
        self.stdout(f"{printable(text)}\n".encode())

    def remark(self, text: str) -> None:
        """Write a line about the job to standard error."""
        self.stderr(f"{printable(text)}\n".encode())


def standard_outputs() -> Outputs:
    """Return the command's own streams."""
    may_wait = _may_wait(sys.stdout.buffer) or _may_wait(sys.stderr.buffer)
    return Outputs(into(sys.stdout.buffer), into(sys.stderr.buffer), may_wait)


def _may_wait(file: IO[bytes]) -> bool:
    """Whether the file is a pipe, a socket or a terminal: its reader may pause."""
    try:
        kind = os.fstat(file.fileno()).st_mode
    except OSError:  # there is no file behind it
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or file.isatty()


def into(file: IO[bytes]) -> Sink:
    """Return a sink that writes to a file and flushes it."""

    def write(data: bytes) -> None:
        file.write(data)
        file.flush()

    return write


class Labels:
    """Writes lines with a label in front: `prefix` and the task.

    An incomplete line is kept until its end has come.
    """

    def __init__(self, outputs: Outputs, prefix: str = "") -> None:
        self._outputs = outputs
        self._prefix = prefix
        self._rest: dict[tuple[str, str], bytes] = {}

    def write(self, stream: str, rank: str, data: bytes) -> None:
        """Take a piece of one task's stream, and show the complete lines."""
        *lines, rest = (self._rest.pop((stream, rank), b"") + data).split(b"\n")
        for line in lines:
            self._show(stream, rank, line)
        if rest:
            self._rest[stream, rank] = rest

    def finish(self) -> None:
        """Show the lines that have no newline."""
        for (stream, rank), line in self._rest.items():
            self._show(stream, rank, line)
        self._rest.clear()

    def _show(self, stream: str, rank: str, line: bytes) -> None:
        label = f"{self._prefix}{rank}: ".encode()
        _sink(self._outputs, stream)(label + line + b"\n")


async def show_output(
    client: Client, jobid: int, outputs: Outputs, labels: Labels | None = None
) -> bool:
    """Show the output of a job to its end, with `labels` if given; print an error that ends it.

    Returns whether all output was shown. A slow reader loses nothing: the instance sends more only
    after the output so far was shown.
    """
    try:
        async with aclosing(read_output(client, jobid)) as pieces:
            async for piece in pieces:
                await outputs.write(partial(_show, outputs, labels, piece))
        return True
    except FluxError as error:
        complain(f"the output ends here: {error}")
        return False
    finally:
        if labels is not None:
            labels.finish()


def _show(outputs: Outputs, labels: Labels | None, piece: Piece) -> None:
    if labels is None:
        _sink(outputs, piece.stream)(piece.data)
    else:
        labels.write(piece.stream, piece.rank, piece.data)
    if piece.note is not None:
        outputs.remark(f"{command_name()}: {piece.note}")


def _sink(outputs: Outputs, stream: str) -> Sink:
    return outputs.stderr if stream == "stderr" else outputs.stdout
