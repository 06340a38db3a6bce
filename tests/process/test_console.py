"""Lines on a standard error that cannot take them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from flux_trio.process.console import CHUNK_BYTES, Lines, fill_standard_descriptors


class Pipe:
    """Standard error of this process is one end, which is non-blocking if that is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reader, self.writer = os.pipe()
        self.stream: IO[str] = os.fdopen(self.writer, "w")
        self._monkeypatch = monkeypatch

    def lines(self) -> Lines:
        """Lines on it; in the test itself, as pytest's capture resets the stream before."""
        self._monkeypatch.setattr(sys, "stderr", self.stream)
        return Lines("stderr")

    def fill(self) -> None:
        """Leave no room."""
        os.set_blocking(self.writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(self.writer, b"x" * CHUNK_BYTES)

    def empty(self) -> None:
        """Read all there is."""
        os.set_blocking(self.reader, False)
        with suppress(BlockingIOError):
            while os.read(self.reader, 1 << 20):
                pass

    def text(self) -> str:
        """What has been written since."""
        return os.read(self.reader, 1 << 20).decode()


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    found = Pipe(monkeypatch)
    yield found
    with suppress(OSError):
        os.close(found.reader)
    found.stream.close()


def test_line_is_written_at_once(pipe: Pipe) -> None:
    pipe.lines().write("one\nand two")
    assert pipe.text() == "one\nand two\n"


@pytest.mark.parametrize("blocking", [True, False])
def test_lines_beyond_what_a_pipe_takes_are_counted_and_the_next_reader_is_told(
    pipe: Pipe, blocking: bool
) -> None:
    lines = pipe.lines()
    pipe.fill()
    os.set_blocking(pipe.writer, blocking)
    lines.write("lost")
    lines.write("lost as well")
    pipe.empty()
    lines.write("here")
    assert pipe.text() == "(2 lines were lost here)\nhere\n"


def test_line_that_a_pipe_takes_in_part_does_not_run_into_the_next(pipe: Pipe) -> None:
    lines = pipe.lines()
    pipe.fill()
    os.read(pipe.reader, CHUNK_BYTES)
    lines.write("y" * (3 * CHUNK_BYTES))
    pipe.empty()
    lines.write("here")
    assert pipe.text() == "\n(1 lines were lost here)\nhere\n"


def test_reader_that_is_gone_is_no_error(pipe: Pipe) -> None:
    lines = pipe.lines()
    os.close(pipe.reader)
    lines.write("lost")


def test_full_disk_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        Lines("stderr").write("lost")


def test_standard_error_that_is_closed_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    "print() would write to standard output then."
    monkeypatch.setattr(sys, "stderr", None)
    Lines("stderr").write("lost")
    assert capsys.readouterr().out == ""


def test_standard_descriptors_that_are_closed_are_taken(pipe: Pipe) -> None:
    "Or else a state file might get the number of standard error."
    if not (child := os.fork()):
        os.closerange(0, 3)
        fill_standard_descriptors()
        os._exit(os.dup(2))  # the least that is free
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) >= 3
