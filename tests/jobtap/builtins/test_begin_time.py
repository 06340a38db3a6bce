"""begin-time."""

from __future__ import annotations

import pytest

from flux_trio.testing import EPOCH
from tests.support.playing import context, names, simulated_jobs, when

HOUR = 3600.0


async def test_job_waits_until_the_clock_shows_the_time(autojump_clock):
    """26.schemes.7"""
    async with simulated_jobs() as jobs:
        late = await jobs.submit(f"begin-time:{EPOCH + 2 * HOUR}")
        soon = await jobs.submit(f"begin-time:{EPOCH + HOUR}")
        for jobid, hours in ((late, 2), (soon, 1)):
            events = await jobs.events(jobid)
            description = f"begin-time={EPOCH + hours * HOUR:.3f}"
            assert context(events, "dependency-add") == {"description": description}
            assert context(events, "dependency-remove") == {"description": description}
            assert when(events, "depend") == pytest.approx(EPOCH + hours * HOUR, abs=0.01)


async def test_time_that_is_past_holds_nobody(autojump_clock):
    """26.schemes.7"""
    async with simulated_jobs() as jobs:
        events = await jobs.events(await jobs.submit("begin-time:0"))
        assert when(events, "depend") == pytest.approx(EPOCH, abs=0.01)


async def test_canceled_job_does_not_wait(autojump_clock):
    async with simulated_jobs() as jobs:
        held = await jobs.submit(f"begin-time:{EPOCH + HOUR}")
        other = await jobs.submit(f"begin-time:{EPOCH + 2 * HOUR}")
        await jobs.cancel(held)
        assert names(await jobs.events(held))[-2:] == ["exception", "clean"]
        assert "finish" in names(await jobs.events(other))
        assert list(jobs.instance.log) == []


@pytest.mark.parametrize("value", ["soon", "-1", "inf", "nan", ""])
async def test_what_is_no_time_is_refused(value: str, autojump_clock):
    """26.schemes.7"""
    async with simulated_jobs() as jobs:
        assert await jobs.refused(f"begin-time:{value}") == f"Invalid begin-time={value}"


async def test_time_that_is_named_twice_counts_once(autojump_clock):
    async with simulated_jobs() as jobs:
        times = [f"begin-time:{EPOCH + HOUR}", f"begin-time:{EPOCH + HOUR + 0.0001}"]
        events = await jobs.events(await jobs.submit(*times, times[0]))
        assert names(events).count("dependency-add") == 1
        assert names(events).count("dependency-remove") == 1
        other = await jobs.submit(f"begin-time:{EPOCH + 2 * HOUR}")
        assert "finish" in names(await jobs.events(other))
        assert list(jobs.instance.log) == []
