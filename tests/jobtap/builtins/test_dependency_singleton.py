"""dependency-singleton."""

from __future__ import annotations

from typing import Any

import trio

from flux_trio.messages import topics
from tests.support.playing import context, guest_of, names, simulated_jobs, when

NAMED: dict[str, Any] = {"attributes": {"system.job.name": "n"}}


async def test_singletons_run_one_after_the_other(autojump_clock):
    async with simulated_jobs() as jobs:
        ids = [await jobs.submit("singleton", **NAMED) for _ in range(3)]
        first, second, third = [await jobs.events(jobid) for jobid in ids]
        assert "dependency-add" not in names(first)
        assert context(second, "dependency-add") == {"description": "singleton"}
        assert when(second, "depend") >= when(first, "clean")
        assert when(third, "depend") >= when(second, "clean")


async def test_singleton_waits_for_jobs_that_are_none(autojump_clock):
    async with simulated_jobs() as jobs:
        plain = await jobs.submit(**NAMED)
        single = await jobs.submit("singleton", **NAMED)
        later = await jobs.submit(seconds=50, **NAMED)
        ends = [when(await jobs.events(jobid), "clean") for jobid in (plain, later)]
        assert when(await jobs.events(single), "depend") >= max(ends)


async def test_jobs_of_other_names_and_users_do_not_matter(autojump_clock):
    async with simulated_jobs() as jobs, guest_of(jobs.instance) as guest:
        await jobs.submit(seconds=100)
        await jobs.submit(seconds=100, attributes={"system.job.name": "other"})
        await guest.submit(seconds=100, **NAMED)
        single = await jobs.submit("singleton", **NAMED)
        assert "dependency-add" not in names(await jobs.events(single))


async def test_canceled_singleton_gives_way_to_the_next(autojump_clock):
    async with simulated_jobs() as jobs:
        first, second, third = [
            await jobs.submit("singleton", seconds=10, **NAMED) for _ in range(3)
        ]
        await jobs.cancel(second)
        ended = await jobs.events(first)
        assert when(await jobs.events(third), "depend") >= when(ended, "clean")


async def test_singleton_needs_a_name(autojump_clock):
    async with simulated_jobs() as jobs:
        assert await jobs.refused("singleton") == "singleton jobs require a job name"


async def test_singleton_does_not_wait_for_a_job_that_was_refused(autojump_clock):
    """It is counted before plugins have refused it."""
    async with simulated_jobs() as jobs:
        first = await jobs.submit("singleton", seconds=10, **NAMED)
        assert "not supported" in await jobs.refused("singleton", "nosuch:1", **NAMED)
        second = await jobs.submit("singleton", **NAMED)
        assert when(await jobs.events(second), "depend") >= when(await jobs.events(first), "clean")
        found = await jobs.call(topics.JOB_JOBTAP_QUERY, {"name": ".dependency-singleton"})
        assert not any(key.endswith(":n") for key in found)


async def test_singletons_that_are_submitted_together_run_one_after_the_other(autojump_clock):
    """The first one is asked about while the others are there: it does not wait for them."""
    async with simulated_jobs() as jobs:
        ids: list[int] = []

        async def submit() -> None:
            ids.append(await jobs.submit("singleton", seconds=10, **NAMED))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(submit)
        first, second, third = [await jobs.events(jobid) for jobid in sorted(ids)]
        assert "dependency-add" not in names(first)
        assert when(second, "depend") >= when(first, "clean")
        assert when(third, "depend") >= when(second, "clean")
