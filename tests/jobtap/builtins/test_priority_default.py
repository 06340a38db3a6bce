"""priority-default."""

from __future__ import annotations

import pytest

from flux_trio.messages import topics
from tests.support.playing import context, simulated_jobs


@pytest.mark.parametrize(("urgency", "priority"), [(0, 0), (1, 1), (16, 16), (31, 4294967295)])
async def test_priority_is_the_urgency_between_hold_and_expedite(
    urgency: int, priority: int, autojump_clock
):
    async with simulated_jobs() as jobs:
        events = await jobs.events(await jobs.submit(urgency=urgency), "priority")
        assert context(events, "priority") == {"priority": priority}


async def test_new_urgency_is_a_new_priority(autojump_clock):
    async with simulated_jobs() as jobs:
        await jobs.submit(nnodes=4, cores_per_task=4, seconds=100)
        job = await jobs.submit()
        await jobs.events(job, "priority")
        await jobs.call(topics.JOB_URGENCY, {"id": job, "urgency": 20})
        priorities = [each.context for each in await jobs.so_far(job) if each.name == "priority"]
        assert priorities == [{"priority": 16}, {"priority": 20}]
