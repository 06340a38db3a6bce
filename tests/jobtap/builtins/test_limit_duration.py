"""limit-duration."""

from __future__ import annotations

import math

import pytest

from flux_trio.config import parse_config
from flux_trio.jobtap.builtins.limit_duration import excess
from tests.support.playing import simulated_jobs

HOUR = 3600.0
CONFIG = parse_config("""
[policy.limits]
duration = "1h"
[policy.jobspec.defaults.system]
queue = "batch"
[queues.batch]
[queues.debug.policy.limits]
duration = "1m"
[queues.long.policy.limits]
duration = "0"
""")


@pytest.mark.parametrize(
    ("duration", "limit", "queue", "text"),
    [
        (HOUR, HOUR, None, None),
        (3660.0, HOUR, None, "requested duration (61m) exceeds policy limit of 1h"),
        (
            120.0,
            60.0,
            "debug",
            "requested duration (2m) exceeds policy limit of 1m for queue debug",
        ),
        (0.0, HOUR, None, "requested duration (unlimited) exceeds policy limit of 1h"),
        (1e9, math.inf, None, None),
        (0.0, math.inf, None, None),
    ],
)
def test_what_exceeds_a_limit(
    duration: float, limit: float, queue: str | None, text: str | None
) -> None:
    """33.limits.6"""
    assert excess(duration, limit, queue) == text


async def test_each_queue_has_its_own_limit_or_the_general_one(autojump_clock):
    """33.limits.6, 33.validation.2: rejected at submission; "0" lifts the general limit."""
    async with simulated_jobs(config=CONFIG) as jobs:
        await jobs.submit(duration=HOUR)
        await jobs.submit(duration=60, queue="debug")
        await jobs.submit(duration=1e6, queue="long")
        await jobs.submit(queue="long")
        assert await jobs.refused(duration=3660) == (
            "requested duration (61m) exceeds policy limit of 1h for queue batch"
        )
        assert await jobs.refused(duration=120, queue="debug") == (
            "requested duration (2m) exceeds policy limit of 1m for queue debug"
        )
        assert await jobs.refused() == (
            "requested duration (unlimited) exceeds policy limit of 1h for queue batch"
        )


async def test_without_limits_any_duration_goes(autojump_clock):
    """33.limits.1"""
    async with simulated_jobs() as jobs:
        await jobs.submit(duration=1e9)
        await jobs.submit()
