"""What requests cost the scheduler: memory by their texts, however many hosts they name."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from flux_trio.cores.sched import requests
from flux_trio.formats import parse_constraint
from flux_trio.policies import Pool, pool
from tests.support.sched_script import SchedScript, alloc, answers, jobspec
from tests.support.scheduling import machine

JOBS = 120
HOSTS = 200_001  # that each of them names


def wide(place: int) -> dict[str, Any]:
    """A constraint that all nodes satisfy, another one for each place."""
    return {"not": [{"hostlist": [f"x{place}n[0-{HOSTS - 1}]"]}]}


@pytest.mark.parametrize("policy", ["fifo", "easy", "conservative"])
def test_many_wide_constraints_take_little_memory(policy: str) -> None:
    """A list of the hosts of one of them would take 12 MB."""
    script = SchedScript(policy)
    script.attach(machine(2, 2))
    asks = [alloc(n + 1, jobspec(3, constraints=wide(n), duration=60.0)) for n in range(JOBS)]
    tracemalloc.start()
    try:
        done = script.turn(*asks)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    granted = [each for each in answers(done) if each["type"] == 0]
    assert len(granted) == 1, "the others wait"
    assert peak < JOBS * 20_000


def test_constraint_that_costs_too_much_is_denied_and_the_next_request_is_granted() -> None:
    script = SchedScript()
    script.attach(machine(2, 2))
    costly = {"or": [{"properties": ["a"]}] * 5000}
    denied, granted = answers(script.turn(alloc(1, jobspec(constraints=costly)), alloc(2)))
    assert denied["type"] == 2
    assert denied["note"] == (
        "invalid jobspec: jobspec.attributes.system.constraints: expected a cost of at most "
        "1048576, got 1335194"
    )
    assert granted["id"] == 2


def test_pool_forgets_the_oldest_answers_when_they_take_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "CANDIDATES_BYTES_MAX", 1300)  # ten of a small machine
    asked = Pool()
    asked.grow(machine(4, 1), 0b1111)
    ranks = [parse_constraint({"ranks": [f"0,{n}"]}) for n in range(1, 30)]
    found = [asked.candidates(each) for each in ranks]
    assert found == [1 | (1 << n if n < 4 else 0) for n in range(1, 30)]
    assert len(asked._candidates._ranks) == 10
    assert [asked.candidates(each) for each in ranks] == found


def test_requests_that_are_kept_as_they_were_read_are_bounded_by_what_they_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "SHAPES_COST_MAX", 100_000)
    script = SchedScript()
    script.attach(machine(2, 2))
    for n in range(200):
        script.turn(alloc(n + 1, jobspec(3, constraints=wide(n))))
        assert script.core._shapes._cost <= 100_000
    kept = len(script.core._shapes._shapes)
    assert 0 < kept < 100
