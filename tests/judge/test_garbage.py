"""The judge outlives whatever a party says: payloads with anything at all in them."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from flux_trio.judge.rules import ALL_RULES
from flux_trio.trace import Record
from tests.support.judged import judge
from tests.support.scenarios import scenario_names, trace_of

GARBAGE = [None, 0, -1, 1.5, float("nan"), 2**64, True, "", "x", "0-3", "\ud800", [], {}]
GARBAGE += [[[]], [{}], ["a", 2], {"a": [1]}]
SEEDS = 60
PER_RECORD, PER_VALUE, PER_KEY = 0.1, 0.08, 0.04  # how often each is spoiled, or left out


def spoiled(value: Any, rng: random.Random) -> Any:
    """A copy in which some values are others, and some keys are missing."""
    if rng.random() < PER_VALUE:
        return rng.choice(GARBAGE)
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if rng.random() > PER_KEY}
        return {key: spoiled(each, rng) for key, each in kept.items()}
    return [spoiled(each, rng) for each in value] if isinstance(value, list) else value


def with_garbage(record: Record, rng: random.Random) -> Record:
    """The record with a spoiled payload or data."""
    if record.message is not None:
        payload = spoiled(record.message.payload, rng)
        message = msgspec.structs.replace(record.message, payload=payload)
        return msgspec.structs.replace(record, message=message)
    data = spoiled(record.data, rng)
    return msgspec.structs.replace(record, data=data if isinstance(data, dict) else {})


@pytest.mark.in_part(3)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_garbage_is_judged_like_anything_else(seed):
    rng = random.Random(seed)
    trace = trace_of(rng.choice(scenario_names()))
    worse = [with_garbage(each, rng) if rng.random() < PER_RECORD else each for each in trace]
    monitor = judge(worse, ALL_RULES)
    assert all(violation.text for violation in monitor.violations)
