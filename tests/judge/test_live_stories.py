"""Stories of a healthy flux-core of which false things were said: what is right of each."""

from __future__ import annotations

import functools
import gzip
from pathlib import Path
from typing import Final

import pytest

from flux_trio.judge import Judgement, Verdict
from flux_trio.trace import Source, read_trace
from tests.support import recorded

STORIES: Final = Path(__file__).parents[1] / "data" / "live-stories"


@functools.cache
def lines_of(name: str) -> tuple[str, ...]:
    data = (STORIES / name).read_bytes()
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
    return tuple(text.splitlines(keepends=True))


def story(name: str) -> Source:
    return read_trace(lines_of(name), cut=lambda _: None)


@functools.cache
def judged(name: str) -> Judgement:
    """The judgement, without what is known of flux-core 0.88."""
    return recorded.judged_source(story(name))


def known_in(judgement: Judgement) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in judgement.known:
        if each.violations:
            found[each.clause] = found.get(each.clause, 0) + len(each.violations)
    return found


# --- a trace that begins late


LATE: Final = ("begun-late.trace.gz", "begun-late.monitor.trace.gz")


@pytest.mark.parametrize("name", LATE)
def test_who_is_started_is_the_execution_service_though_its_hello_was_before(name: str) -> None:
    """RFC 32: `check` says what the monitor said of the same messages."""
    judgement = judged(name)
    assert judgement.violations == ()
    assert known_in(judgement) == {"32.start.20": 5}
    kept = [id_ for id_, verdict in judgement.verdicts.items() if verdict is Verdict.KEPT]
    assert sum(id_.startswith("32.") for id_ in kept) >= 31


@pytest.mark.parametrize("name", LATE)
def test_the_trace_is_not_said_to_lack_what_it_has(name: str) -> None:
    """32.start.23: there are five releases in it."""
    judgement = judged(name)
    of_exec = [id_ for id_ in judgement.left_out if id_.startswith("32.")]
    released = [id_ for id_ in of_exec if "release response" in judgement.left_out[id_]]
    assert all(judgement.left_out[id_].startswith("what the trace shows") for id_ in released)


# --- two statuses of one job


def test_a_second_finish_is_of_the_execution_service() -> None:
    """32.start.37, and not 32.start.30: the job manager logs what it was told."""
    judgement = judged("backfill.trace.gz")
    assert judgement.violations == ()
    assert known_in(judgement) == {"32.start.20": 7, "32.start.37": 4}
