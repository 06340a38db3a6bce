"""Files with traces, as the commands read and write them."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from io import FileIO
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO, TYPE_CHECKING

import click

from flux_trio.cli.terminal.errors import CommandError, Unusable, complain
from flux_trio.process.private import FILE_MODE, making_private

if TYPE_CHECKING:
    from flux_trio.trace import Record, Source, TurnSink


@contextmanager
def opened(trace: Path) -> Iterator[Source]:
    """Yield the trace of a file. Errors of the file, also of its records, become Unusable."""
    from flux_trio.trace import read_trace, text_lines

    with _errors_of(trace), trace.open("rb") as file:
        yield read_trace(text_lines(file.readline))


@contextmanager
def opened_twice(
    trace: Path, cut: Callable[[int], object]
) -> Iterator[tuple[Source, Callable[[], Source]]]:
    """Yield the trace of a file, and a function that reads it once more after its end.

    `-` is standard input. A pipe is kept in a temporary file meanwhile, since it can be read only
    once. Errors become Unusable, as those of `opened`; `cut` is called as by `read_trace`.
    """
    from flux_trio.trace import read_trace, text_lines

    with (
        _errors_of(trace),
        open_input(trace) as file,
        nullcontext(file) if file.seekable() else TemporaryFile() as whole,
    ):
        readline = file.readline if whole is file else _copying(file, whole)

        def read_again() -> Source:
            with _errors_of(trace if whole is file else gettempdir()):
                whole.seek(0)
            return read_trace(text_lines(whole.readline))

        yield read_trace(text_lines(readline), cut=cut), read_again


def of_edition(source: Source, edition: str | None) -> tuple[Source, str]:
    """Return the trace, and the edition to judge it by: `edition`, or what its instance speaks.

    An instance says it in its configuration, which is recorded before the first message.
    """
    from msgspec.structs import replace

    from flux_trio.judge.rules import CLASSIC, edition_of
    from flux_trio.trace import Kind

    if edition is not None:
        return source, edition
    spoken = CLASSIC
    first: list[Record] = []
    for record in source.records:
        first.append(record)
        if record.kind == Kind.CONFIG:
            spoken = edition_of(record)
        if record.kind == Kind.CONFIG or record.message is not None:
            break
    return replace(source, records=chain(first, source.records)), spoken


def open_input(path: Path) -> AbstractContextManager[IO[bytes]]:
    """Open a file to read it; `-` is standard input, which stays open."""
    return nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb")


def _copying(file: IO[bytes], copy: IO[bytes]) -> Callable[[int], bytes]:
    """Return a `readline` that also writes what it has read."""
    read, write = file.readline, copy.write

    def readline(most: int) -> bytes:
        line = read(most)
        try:  # a context per line takes as long as reading it
            write(line)
        except OSError:
            with _errors_of(gettempdir()):
                raise
        return line

    return readline


@contextmanager
def _errors_of(file: str | Path) -> Iterator[None]:
    from flux_trio.formats import FormatError

    try:
        yield
    except OSError as error:
        raise Unusable(f"{file}: {error.strerror}") from None
    except FormatError as error:
        raise Unusable(f"{file}: {error}") from None


def refuse_to_overwrite(trace: Path, output: Path | None) -> None:
    """Raise UsageError if `output`, where a report goes, is the trace that it is about."""
    if output is not None and output.exists() and trace.exists() and output.samefile(trace):
        raise click.UsageError(f"--output: expected another file than the trace, got {output}")


@contextmanager
def written_trace(
    path: Path | None, report: Callable[[str], object] = complain, *, environments: bool = False
) -> Iterator[tuple[TurnSink, ...]]:
    """Yield sinks that write the trace to a file; it is complete at the end of the block.

    Only its user can read the file. The environments of jobs are in it if `environments` says so.

    If it is not, because a write failed, `report` gets the message then. Raises CommandError if the
    file cannot be opened; and if another process writes a trace to it, or if it is another user's,
    and leaves it as it is.
    """
    if path is None:
        yield ()
        return
    from flux_trio.trace import JsonLines

    # unbuffered, so that a full disk shows here and not when the file is closed
    try:
        file = open(path, "ab", buffering=0, opener=making_private)  # noqa: SIM115
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    with file:
        _empty(file, path)
        with closing(JsonLines(_whole(file), environments=environments)) as lines:
            try:
                yield (lines.append,)
            finally:
                lines.end()
    if lines.error is not None:
        report(f"{path}: the trace is incomplete: {lines.error.strerror}")


def _empty(file: FileIO, path: Path) -> None:
    """Empty a file that is to have one trace, and keep other processes and users away from it."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        return
    if status.st_uid != os.getuid():
        raise CommandError(f"{path}: belongs to another user")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CommandError(f"{path}: another process writes its trace to this file") from None
    file.truncate(0)
    os.fchmod(file.fileno(), FILE_MODE)


def _whole(file: FileIO) -> Callable[[bytes], None]:
    """Return a function that writes all bytes; one write to an unbuffered file may be partial."""

    def write(data: bytes) -> None:
        left = memoryview(data)
        while left:
            written = file.write(left)
            if written is None:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            left = left[written:]

    return write
