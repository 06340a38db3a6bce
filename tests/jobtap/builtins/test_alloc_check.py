"""alloc-check."""

from __future__ import annotations

from flux_trio.jobtap.builtins.alloc_bypass import AllocBypass
from flux_trio.jobtap.builtins.alloc_check import AllocCheck
from flux_trio.sim import make_machine
from tests.support.playing import context, names, simulated_jobs

BRINGS_ALL = {"system.alloc-bypass": {"R": make_machine(4, 4).to_json()}}


async def test_job_that_is_given_what_another_has_is_ended(autojump_clock):
    plugins = [AllocBypass(), AllocCheck()]
    async with simulated_jobs(plugins=plugins) as jobs:
        first = await jobs.submit(seconds=100, attributes=BRINGS_ALL)
        await jobs.events(first, "start")
        second = await jobs.events(await jobs.submit(attributes=BRINGS_ALL))
        exception = context(second, "exception")
        assert (exception["type"], exception["severity"]) == ("alloc-check", 0)
        assert exception["note"] == "resources already allocated"
        assert "start" not in names(second)
        assert "exception" not in names(await jobs.events(first))
        assert "finish" in names(await jobs.events(await jobs.submit(attributes=BRINGS_ALL)))


async def test_job_may_have_what_a_canceled_job_had(autojump_clock):
    plugins = [AllocBypass(), AllocCheck()]
    async with simulated_jobs(plugins=plugins) as jobs:
        first = await jobs.submit(seconds=100, attributes=BRINGS_ALL)
        await jobs.events(first, "start")
        await jobs.cancel(first)
        assert context(await jobs.events(first), "exception")["type"] == "cancel"
        second = await jobs.events(await jobs.submit(attributes=BRINGS_ALL))
        assert "exception" not in names(second)
        assert "finish" in names(second)
