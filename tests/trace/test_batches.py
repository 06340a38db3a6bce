"""Records that are passed on many at a time."""

from __future__ import annotations

import pytest

from flux_trio.lab.properties.world_judge import WorldJudge
from flux_trio.trace import Batches, Kind, Record


def record(n: int) -> Record:
    return Record(n, 0.0, Kind.STATE.value, "a")


@pytest.mark.parametrize("nrecords", [0, 1, 2, 3, 4, 7])
def test_all_come_once_and_in_order(nrecords: int) -> None:
    taken: list[int] = []
    batches = Batches(lambda record: taken.append(record.n), size=3)
    for n in range(nrecords):
        batches.append(record(n))
        assert taken == list(range((n + 1) // 3 * 3))
    batches.flush()
    batches.flush()
    assert taken == list(range(nrecords))


def test_a_sink_that_passes_on_more_while_it_takes_loses_none() -> None:
    taken: list[int] = []

    def take(each: Record) -> None:
        taken.append(each.n)
        if each.n == 1:
            batches.append(record(3))

    batches = Batches(take, size=2)
    batches.append(record(1))
    batches.append(record(2))
    batches.flush()
    assert taken == [1, 2, 3]


def test_violations_of_lives_are_those_of_all_records_so_far() -> None:
    """They are judged when somebody asks, however few there are."""
    lives = WorldJudge()
    job = {"id": 1, "name": "submit", "context": {}}
    lives.observe(Record(1, 0.0, Kind.EVENT.value, "job-manager", data=job))
    lives.observe(Record(2, 0.0, Kind.EVENT.value, "job-manager", data=job))
    assert "21.criteria.3" in {each.clause for each in lives.violations}
