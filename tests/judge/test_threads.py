"""Traces may be judged in several threads: what is cached of one record stays its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from flux_trio.judge.engine.selector import job_id, name_of, once, payload
from flux_trio.judge.engine.view import seen_once
from flux_trio.judge.rules import ALL_RULES
from flux_trio.trace import Record
from tests.support.judged import judge
from tests.support.scenarios import trace_of

THREADS = 4
TIMES = 20_000


def numbered(number: int) -> Record:
    return Record(number, 0.0, "event", "job-manager", data={"id": number, "name": str(number)})


FOUND: dict[str, Callable[[Record], Any]] = {
    "job_id": job_id,
    "payload": lambda record: job_id(record) and payload(record)["id"],
    "name_of": lambda record: int(name_of(record)),
    "once": once(lambda record: record.n),
    "seen_once": lambda record: SEEN_ONCE(record, SEEN),
}
SEEN: Any = object()
SEEN_ONCE = seen_once(lambda record, _seen: record.n)


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("name", FOUND)
def test_each_thread_finds_what_is_of_its_own_record(name: str) -> None:
    def wrong(number: int) -> int:
        records = [numbered(number), numbered(number + THREADS)]
        found = [FOUND[name](each) == each.n for _ in range(TIMES) for each in records]
        return found.count(False)

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(wrong, range(1, THREADS + 1))) == [0] * THREADS


def test_each_thread_judges_its_own_trace() -> None:
    def verdicts(name: str) -> object:
        found = judge(trace_of(name), ALL_RULES)
        return found.violations, found.verdicts()

    names = ("drains", "updates", "execution_by_hand")
    alone = [verdicts(name) for name in names]
    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(verdicts, names)) == alone
