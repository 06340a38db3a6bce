"""The times of a printed trace are local times; what they tell of shows the zone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

import pytest

from flux_trio.trace import Record, read_trace
from tests.support import recorded

NAME = "live.sched-simple.trace"
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}")
IN_THE_MIDDLE = datetime.fromisoformat("2026-11-27T19:22:38.000")


def printed(hours: float, since: datetime = datetime.min) -> list[str]:
    """The trace as it is printed where clocks are so much ahead of UTC, since a moment."""

    def moved(match: re.Match[str]) -> str:
        t = datetime.fromisoformat(match[0])
        local = t + timedelta(hours=hours) if t >= since else t
        return local.isoformat(timespec="milliseconds")

    lines = recorded.module_trace(NAME).splitlines(keepends=True)
    return [STAMP.sub(moved, line, count=1) if line[:2] == "20" else line for line in lines]


def records(lines: Iterable[str]) -> list[Record]:
    return list(read_trace(lines).records)


@pytest.mark.parametrize("hours", [-8.0, 5.75, 14.0])
def test_records_have_the_same_times_wherever_the_trace_was_printed(hours: float) -> None:
    assert records(printed(hours)) == records(printed(0.0))


def test_clocks_that_are_set_back_in_a_trace_are_noticed() -> None:
    moved = records(printed(-1.0, since=IN_THE_MIDDLE))
    wrong = [
        each.n
        for each, right in zip(moved, records(printed(0.0)), strict=True)
        if each.t != right.t
    ]
    assert len(wrong) < 20, "until the next event"


def test_trace_without_events_is_in_utc() -> None:
    lines = [line for line in printed(3.0) if "events-journal" not in line and line[:2] == "20"]
    first = next(read_trace(lines).records)
    assert first.t == datetime.fromisoformat(f"{STAMP.match(lines[0])[0]}+00:00").timestamp()  # type: ignore[index]
