"""validate-duration."""

from __future__ import annotations

from flux_trio.sim import make_machine
from flux_trio.testing import EPOCH
from tests.support.playing import simulated_jobs


async def test_job_may_not_ask_for_longer_than_the_instance_has_left(autojump_clock):
    machine = make_machine(nnodes=1, cores_per_node=4).with_times(0.0, EPOCH + 3600)
    async with simulated_jobs(inventory=machine) as jobs:
        text = "job duration (2h) exceeds remaining instance lifetime (1h)"
        assert await jobs.refused(duration=7200) == text
        await jobs.submit()
        held = await jobs.submit(duration=1800, urgency=0)
        await jobs.events(await jobs.submit(duration=1800, seconds=1800))
        assert "exceeds remaining instance lifetime" in await jobs.refused(duration=1801)
        assert await jobs.update(held, duration=600) == ""


async def test_end_that_the_instance_gets_later_is_looked_at(autojump_clock):
    machine = make_machine(nnodes=1, cores_per_node=4)
    async with simulated_jobs(inventory=machine) as jobs:
        await jobs.submit(duration=7200)
        await jobs.instance.set_expiration(EPOCH + 3600)
        text = await jobs.refused(duration=7200)
        assert text.startswith("job duration (2h) exceeds remaining instance lifetime (")
