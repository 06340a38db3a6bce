"""The log on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.broker import LogBook, LogEntry, LogFile
from flux_trio.broker.log import FILE_BYTES_MAX, LOG_RING_SIZE, TEXT_CHARS_MAX
from flux_trio.messages import Level


def entry(n: int, text: str = "") -> LogEntry:
    return LogEntry(float(n), Level.INFO, "kvs", text or f"line {n}")


Open: TypeAlias = Callable[[Path], LogBook]


@contextmanager
def books() -> Iterator[Open]:
    """Yield a function that opens the log of a directory; close all of them after the block."""
    with ExitStack() as stack:

        def opened(directory: Path) -> LogBook:
            log = LogBook(LogFile(directory))
            stack.callback(log.close)
            return log

        yield opened


@pytest.fixture
def book() -> Iterator[Open]:
    with books() as opened:
        yield opened


def test_next_instance_reads_the_entries(book: Open, tmp_path: Path) -> None:
    first = book(tmp_path)
    first.write(entry(1))
    second = book(tmp_path)
    second.write(entry(2))
    assert list(second) == list(book(tmp_path)) == [entry(1), entry(2)]
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_at_least_a_ring_of_entries_in_bounded_space(book: Open, tmp_path: Path) -> None:
    log = book(tmp_path)
    for n in range(3 * LOG_RING_SIZE + 5):
        log.write(entry(n))
        if n == 2 * LOG_RING_SIZE:
            log = book(tmp_path)
    assert list(book(tmp_path)) == list(log)
    assert len(list(log)) == LOG_RING_SIZE
    lines = [(tmp_path / name).read_bytes().count(b"{") for name in ("log.1", "log")]
    assert lines == [LOG_RING_SIZE, 5]


def test_long_entries_are_bounded_in_bytes(book: Open, tmp_path: Path) -> None:
    log = book(tmp_path)
    for n in range(3 * FILE_BYTES_MAX // TEXT_CHARS_MAX):
        log.write(entry(n, "x" * TEXT_CHARS_MAX))
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) <= FILE_BYTES_MAX


def test_cleared_log_stays_cleared(book: Open, tmp_path: Path) -> None:
    log = book(tmp_path)
    for n in range(LOG_RING_SIZE + 1):
        log.write(entry(n))
    log.clear()
    assert list(book(tmp_path)) == []
    log.write(entry(7))
    assert list(book(tmp_path)) == [entry(7)]


def test_log_goes_on_after_somebody_has_moved_its_file(book: Open, tmp_path: Path) -> None:
    log = book(tmp_path)
    log.write(entry(0))
    (tmp_path / "log").rename(tmp_path / "mine")
    for n in range(1, LOG_RING_SIZE + 3):
        log.write(entry(n))
    assert list(book(tmp_path)) == [
        entry(LOG_RING_SIZE),
        entry(LOG_RING_SIZE + 1),
        entry(LOG_RING_SIZE + 2),
    ]


def test_directory_that_cannot_be_written_costs_nothing_but_the_file(
    book: Open, tmp_path: Path
) -> None:
    log = book(tmp_path / "not there")
    log.write(entry(1))
    log.clear()
    log.write(entry(2))
    assert list(log) == [entry(2)]


def test_line_that_a_full_disk_has_cut_is_left_out(book: Open, tmp_path: Path) -> None:
    log = book(tmp_path)
    log.write(entry(1))
    log.write(entry(2))
    path = tmp_path / "log"
    os.truncate(path, path.stat().st_size - 3)
    again = book(tmp_path)
    again.write(entry(3))
    assert list(book(tmp_path)) == [entry(1), entry(3)]


@given(st.lists(st.text(), max_size=5))
def test_every_text_is_read_back(texts: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name, books() as book:
        log = book(Path(name))
        for text in texts:
            log.write(LogEntry(0.1, Level.ERR, text, text))
        assert list(book(Path(name))) == list(log)
