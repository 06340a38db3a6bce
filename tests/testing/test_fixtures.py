"""The simulated instance, as somebody who tests against flux-trio uses it."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from flux_trio.broker import Handle
from flux_trio.config import Config, SchedConfig
from flux_trio.formats import Jobspec, parse_eventlog
from flux_trio.jobtap import Plugin, Reject, on
from flux_trio.messages import FluxError, topics
from flux_trio.sim import make_machine
from flux_trio.testing import EPOCH, simulated_instance

HOUR = 3600.0


async def submit(handle: Handle, **resources: Any) -> int:
    """The id of a new job of an hour."""
    attributes = {"system.exec.test.run_duration": HOUR}
    jobspec = Jobspec.from_command(["true"], attributes=attributes, **resources)
    answer = await handle.call(topics.INGEST_SUBMIT, {"jobspec": jobspec.to_json()})
    return int(answer["id"])


async def times(handle: Handle, jobid: int) -> dict[str, float]:
    """When each event of the job was, since the start of the instance; waits for its end."""
    text = ""
    with trio.fail_after(24 * HOUR):
        async with handle.stream(topics.INFO_WATCH, {"id": jobid}) as responses:
            async for response in responses:
                text += response["event"] + "\n"
    return {event.name: event.timestamp - EPOCH for event in parse_eventlog(text)}


async def test_a_job_of_an_hour_ends_after_an_hour_of_the_virtual_clock(autojump_clock):
    async with simulated_instance() as instance, instance.connect() as handle:
        found = await times(handle, await submit(handle))
        assert found["finish"] - found["start"] == pytest.approx(HOUR)
        assert found["clean"] == pytest.approx(trio.current_time(), abs=1e-3)


async def test_the_inventory_is_what_is_given(autojump_clock):
    async with simulated_instance(make_machine(2, 2)) as instance, instance.connect() as handle:
        jobs = [await submit(handle, nnodes=2, cores_per_task=2) for _ in range(2)]
        first, second = [await times(handle, jobid) for jobid in jobs]
        assert second["alloc"] >= first["free"]


async def test_the_configuration_is_what_is_given_but_jobs_always_pretend(autojump_clock):
    config = Config(sched=SchedConfig(policy="easy"))
    async with simulated_instance(config=config) as instance, instance.connect() as handle:
        assert (await handle.call("sched.stats-get"))["policy"] == "easy"
        jobspec = Jobspec.from_command(["true"], duration=HOUR).to_json()
        answer = await handle.call(topics.INGEST_SUBMIT, {"jobspec": jobspec})
        found = await times(handle, int(answer["id"]))
        assert found["finish"] - found["start"] == pytest.approx(HOUR)


async def test_plugins_are_asked(autojump_clock):
    class Refuse(Plugin):
        name = "refuse"

        @on("job.validate")
        def validate(self, job):
            raise Reject("not today")

    async with simulated_instance(plugins=[Refuse()]) as instance, instance.connect() as handle:
        with pytest.raises(FluxError, match="not today"):
            await submit(handle)


async def test_nothing_is_left_when_the_block_ends(autojump_clock):
    for _ in range(2):
        async with simulated_instance() as instance, instance.connect() as handle:
            assert await handle.call(topics.JOB_GETINFO) == {"max_jobid": 0}
            await submit(handle)
