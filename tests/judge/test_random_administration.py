"""Whatever an administrator does, and whatever lies are told, the judge accuses only those who lie.

Each hour is drawn from one seed, the test's parameter; `--administration 0:200` plays 200 of them.
"""

from __future__ import annotations

import random

import pytest

from flux_trio.judge import Violation
from flux_trio.judge.rules import ALL_RULES
from tests.support.administration import LIARS, Administrator, draw_config, machine
from tests.support.judged import judge
from tests.support.scenarios import Stage, play_on


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    first, _, last = metafunc.config.getoption("--administration").partition(":")
    metafunc.parametrize("seed", range(int(first), int(last)))


def is_true(violation: Violation) -> bool:
    """Whether a liar is accused, or the producer of a text that a liar sends."""
    party = violation.party
    said_by = violation.record.party if party.endswith("-producer") else party
    return said_by.startswith(LIARS)


def test_nobody_is_accused_of_what_others_do(seed: int) -> None:
    draw = random.Random(seed)

    async def play(stage: Stage) -> None:
        await Administrator(stage, draw).work()

    trace = play_on(play, draw_config(draw), seed, machine())
    false = [each for each in judge(trace, ALL_RULES).violations if not is_true(each)]
    assert [f"{v.clause} of {v.party} at {v.record.n}: {v.text}" for v in false] == []
