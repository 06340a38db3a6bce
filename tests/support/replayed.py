"""Every instance recorded with its turns, and replayed from the lines of its trace.

`pytest -p tests.support.replayed` runs any test so: the cores of a replay must do what the
instance's own have done.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flux_trio.instance import Instance
from flux_trio.lab.world.recorded import Difference, RecordedInstance
from flux_trio.trace import JsonLines, read_trace

BYTES_MAX = 20_000_000
"""A longer trace is replayed up to there: tests with 20,000 jobs are there to find bounds."""


def replayed(lines: Iterable[str]) -> tuple[Difference | None, RecordedInstance]:
    """Replay a trace to its end or its first difference."""
    instance = RecordedInstance()
    for record in read_trace(lines, turns=True).records:
        difference = instance.observe(record)
        if difference is not None:
            return difference, instance
    return None, instance


def assert_replayed(trace: Path) -> RecordedInstance:
    """The cores of a replay do what the trace has."""
    with trace.open() as lines:
        difference, instance = replayed(lines)
    assert difference is None, str(difference)
    assert instance.nturns
    return instance


class Kept:
    """The trace of one instance, with the turns of its cores."""

    def __init__(self) -> None:
        self._lines = bytearray()
        self.sink = JsonLines(self._write)

    def _write(self, data: bytes) -> None:
        if len(self._lines) < BYTES_MAX:
            self._lines += data

    def lines(self) -> list[str]:
        """The lines so far; later records are ignored."""
        self.sink.close()
        return self._lines.decode().splitlines(keepends=True)


@contextmanager
def recording(kept: list[Kept]) -> Iterator[None]:
    """Record every instance that is opened in the block."""
    init = Instance.__init__

    def remember(self: Instance, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        kept.append(Kept())
        self.trace.add_turn_sink(kept[-1].sink.append)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Instance, "__init__", remember)
        yield


@pytest.fixture(autouse=True)
def _replayed() -> Iterator[None]:
    kept: list[Kept] = []
    with recording(kept):
        yield
    for each in kept:
        lines = each.lines()
        difference, _ = replayed(lines)
        if (where := os.environ.get("FLUX_TRIO_KEEP_TRACE")) and difference is not None:
            Path(where).write_text("".join(lines))
        assert difference is None, str(difference)
