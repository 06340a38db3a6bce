"""A trace of modules that goes on: the same records, as soon as they are complete; and its text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.trace import Record, read_trace
from flux_trio.trace.module_trace import LiveModuleTrace
from flux_trio.trace.printed import date_of, parse_lines
from flux_trio.trace.routed import SETTLED_S
from flux_trio.trace.traced_message import TracedMessage

DATA = Path(__file__).parents[1] / "data"
TRACES = sorted((DATA / "module-traces").glob("*.trace"))


def told() -> Iterator[TracedMessage]:
    """What flux-core's module.trace told of the job manager while jobs ran."""
    for line in (DATA / "wire-captures" / "modtrace.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["topic"] == "module.trace" and record["type"] == "rsp":
            yield msgspec.convert(record["p"], TracedMessage)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
@pytest.mark.parametrize("step", [1, 7, 500])
def test_a_trace_that_goes_on_has_the_records_of_one_that_is_read(path: Path, step: int) -> None:
    lines = path.read_text().splitlines(keepends=True)
    live, found = LiveModuleTrace(), list[Record]()
    for place, line in enumerate(parse_lines(lines, lambda _: None)):
        live.put(line)
        if place % step == 0:
            found += live.records(line.t)
    found += live.records(float("inf"))
    assert found == list(read_trace(lines).records)


def test_what_is_complete_is_passed_on_though_nothing_more_comes() -> None:
    lines = [
        msgspec.structs.replace(each, timestamp=place / 10).line(place)
        for place, each in enumerate(told(), 1)
    ]
    live = LiveModuleTrace(100)
    for line in lines:
        live.put(line)
    last = lines[-1].t
    early = list(live.records(last))
    late = list(live.records(last + 2 * SETTLED_S))
    assert 1 < len(early) < len(lines) - 1
    assert max(each.t for each in early) <= last - SETTLED_S
    assert late
    assert [each.n for each in early + late] == list(range(101, 101 + len(early + late)))
    assert list(live.records(float("inf"))) == []


def test_what_is_told_is_printed_as_a_trace_is_read() -> None:
    text = "".join(each.text() for each in told())
    printed = list(parse_lines(text.splitlines(keepends=True), lambda _: None))
    given = [each.line(place) for place, each in enumerate(told(), 1)]
    assert len(printed) == len(given) == 28
    for was, read in zip(given, printed, strict=True):
        assert read.payload == was.payload
        assert abs(read.t - was.t) <= 0.0006
        assert (read.module, read.is_sent, read.type) == (was.module, was.is_sent, was.type)
        assert (read.topic, read.errnum, read.is_empty) == (was.topic, was.errnum, was.is_empty)


def test_an_error_is_printed_with_its_name_and_its_text() -> None:
    failed = TracedMessage(0.0, "tx", "sched", 2, "sched.alloc", 0, None, 71, "cannot read")
    assert failed.text() == (
        "1970-01-01T00:00:00.000 sched tx < sched.alloc [0] EPROTO\ncannot read\n"
    )
    assert failed.line(1).payload == "cannot read"


@given(st.floats(0, 32503680000 - 1))
def test_a_date_is_that_of_the_time_in_utc(t: float) -> None:
    ms = round(t * 1000)
    date = datetime.fromtimestamp(ms // 1000, UTC).replace(tzinfo=None)
    assert date_of(t) == f"{date.isoformat()}.{ms % 1000:03}"
