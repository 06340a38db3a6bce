"""alloc-bypass."""

from __future__ import annotations

from typing import Any

from flux_trio.jobtap.builtins.alloc_bypass import AllocBypass
from flux_trio.sim import make_machine
from tests.support.playing import context, guest_of, names, simulated_jobs

R: dict[str, Any] = make_machine(nnodes=1, cores_per_node=2).to_json()


def bringing(resources: object) -> dict[str, Any]:
    return {"attributes": {"system.alloc-bypass": {"R": resources}}}


async def test_job_runs_on_what_it_brings(autojump_clock):
    async with simulated_jobs(plugins=[AllocBypass()]) as jobs:
        await jobs.submit(nnodes=4, cores_per_task=4, seconds=1000)  # nothing is free
        events = await jobs.events(await jobs.submit(**bringing(R)))
        assert names(events) == [
            "submit",
            "set-flags",
            "validate",
            "depend",
            "priority",
            "alloc",
            "start",
            "finish",
            "release",
            "free",
            "clean",
        ]
        assert context(events, "alloc") == {"bypass": True}
        assert context(events, "release") == {"ranks": "0", "final": True}


async def test_others_ask_the_scheduler(autojump_clock):
    async with simulated_jobs(plugins=[AllocBypass()]) as jobs:
        assert "bypass" not in context(await jobs.events(await jobs.submit()), "alloc")


async def test_guests_and_bad_resources_are_refused(autojump_clock):
    async with simulated_jobs(plugins=[AllocBypass()]) as jobs, guest_of(jobs.instance) as guest:
        assert await guest.refused(**bringing(R)) == "Guest user cannot use alloc bypass"
        text = await jobs.refused(**bringing({"version": 1}))
        assert text.startswith("alloc-bypass: invalid R: ")
