"""Nothing that a core decides depends on the numbers of jobs and requests, or on the time."""

from __future__ import annotations

import importlib

import pytest

from flux_trio.lab import draw_plan, run_plan
from tests.planter.planting import CORES
from tests.support import reborn
from tests.support.renumbered import beside_other_numbers

SEEDS = 15
IN_ONE = 5  # seeds of one test


@pytest.mark.gate
@pytest.mark.parametrize("first", range(0, SEEDS, IN_ONE))
def test_cores_with_other_numbers_do_the_same_and_have_equal_fingerprints(first: int) -> None:
    """Whatever goes wrong in a world, with a second core beside each."""
    if reborn.is_on:
        pytest.skip("cores are replaced by others, which nobody compares")
    classes = [getattr(importlib.import_module(module), name) for module, name in CORES.items()]
    with beside_other_numbers(*classes):
        for seed in range(first, first + IN_ONE):
            run_plan(draw_plan(seed))
