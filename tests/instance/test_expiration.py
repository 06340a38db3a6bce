"""A new end of the instance, as the job it runs in gets one: who hears of it, and what they do."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from flux_trio.formats import Jobspec, parse_eventlog
from flux_trio.instance import Instance
from flux_trio.messages import FluxError, topics
from flux_trio.sim import make_machine
from flux_trio.testing import EPOCH, simulated_instance, watched

END = EPOCH + 100.0
LATER, SOONER = EPOCH + 1000.0, EPOCH + 50.0
INVENTORY = make_machine(nnodes=2, cores_per_node=2).with_times(EPOCH, END)


def spec(duration: float = 0.0, run_s: float = 5000.0) -> dict[str, Any]:
    test = {"system.exec.test.run_duration": run_s}
    return Jobspec.from_command(["true"], duration=duration, attributes=test).to_json()


async def submit(instance: Instance, **what: float) -> int:
    async with instance.connect() as handle:
        jobid = (await handle.call(topics.INGEST_SUBMIT, {"jobspec": spec(**what)}))["id"]
    await trio.testing.wait_all_tasks_blocked()
    return int(jobid)


async def expirations(instance: Instance, jobid: int) -> list[float]:
    """What its resource-update events say, in order."""
    await trio.testing.wait_all_tasks_blocked()
    async with instance.connect() as handle:
        found = await handle.call(topics.INFO_LOOKUP, {"id": jobid, "keys": ["eventlog"]})
    events = parse_eventlog(found["eventlog"])
    return [(e.context or {})["expiration"] for e in events if e.name == "resource-update"]


async def outcome(instance: Instance, jobid: int) -> str:
    """How the job ended, when it has."""
    async with instance.connect() as handle:
        job = (await handle.call(topics.LIST_ID, {"id": jobid}))["job"]
    return str(job.get("exception_type", ""))


async def test_jobs_that_end_with_the_instance_end_with_its_new_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with watched():
        async with simulated_instance(INVENTORY) as instance:
            unlimited, limited = await submit(instance), await submit(instance, duration=60)
            await instance.set_expiration(LATER)
            assert await expirations(instance, unlimited) == [LATER]
            assert await expirations(instance, limited) == []
            await trio.sleep(500)
            assert await outcome(instance, unlimited) == ""
            await trio.sleep(600)
            assert await outcome(instance, unlimited) == "timeout"


async def test_an_end_that_comes_sooner_ends_every_job_by_then(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with watched():
        async with simulated_instance(INVENTORY) as instance:
            unlimited, limited = await submit(instance), await submit(instance, duration=60)
            await instance.set_expiration(SOONER)
            assert await expirations(instance, unlimited) == [SOONER]
            assert await expirations(instance, limited) == [SOONER]


async def test_jobs_may_be_as_long_as_the_new_end_allows(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with simulated_instance(INVENTORY) as instance:
        with pytest.raises(FluxError, match="exceeds remaining instance lifetime"):
            await submit(instance, duration=500)
        await instance.set_expiration(LATER)
        jobid = await submit(instance, duration=500, run_s=400)
        await trio.sleep(450)
        assert await outcome(instance, jobid) == ""
        await instance.set_expiration(0.0)  # none
        await submit(instance, duration=100_000)


@pytest.mark.parametrize("module", ["sched", "resource", "job-manager"])
async def test_a_module_that_is_loaded_later_knows_the_new_end(
    autojump_clock: trio.testing.MockClock, module: str
) -> None:
    async with simulated_instance(INVENTORY) as instance:
        await instance.set_expiration(LATER)
        async with instance.connect() as handle:
            await handle.call(topics.MODULE_RELOAD, {"name": module})
        await trio.sleep(200)  # beyond the old end
        jobid = await submit(instance, duration=500, run_s=1)
        await trio.sleep(10)
        async with instance.connect() as handle:
            job = (await handle.call(topics.LIST_ID, {"id": jobid}))["job"]
        assert job["t_run"] < EPOCH + 210
        with pytest.raises(FluxError, match="exceeds remaining instance lifetime"):
            await submit(instance, duration=5000)
