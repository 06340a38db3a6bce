"""Queues: stopped and started."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.config import parse_config
from flux_trio.messages import FluxError, topics
from flux_trio.trace import Kind, Record
from tests.support.judged import Trace, hand_made, made_event, made_note
from tests.support.scenarios import Stage, made_scenario, scenario


@scenario()
async def queue_stopped(stage: Stage) -> None:
    """One job runs, one waits for it, one comes while the queue is stopped."""
    await stage.submit(20.0, ntasks=4)
    await stage.submit(5.0)
    await stage.settle()
    await stage.call(topics.JOB_QUEUE_START, start=False)
    await stage.submit(5.0)
    await stage.settle()
    await stage.call(topics.JOB_QUEUE_START, start=True)
    await stage.settle(40.0)


SEVERAL = parse_config("""
[exec]
simulate = true
[policy.jobspec.defaults.system]
queue = "batch"
[policy.limits]
duration = "1h"
job-size.max.ncores = 2
[queues.batch.policy.limits.job-size]
max = { nnodes = 1, ncores = 3, ngpus = 0 }
[queues.wide.policy.limits.job-size.min]
nnodes = 2
[queues.debug.policy.limits]
duration = "1m"
[queues.closed.policy.access]
allow-user = []
[queues.later]
started = false
""")


@scenario(config=SEVERAL)
async def several_queues(stage: Stage) -> None:
    """Jobs that are taken and jobs that are not; debug is disabled, later is started later."""

    async def submit(queue: str | None = None, duration: float = 30.0, **resources: int) -> int:
        test = {"run_duration": 5.0}
        attributes = {"system.queue": queue} if queue else {}
        return await stage.submit_test(test, duration=duration, attributes=attributes, **resources)

    async def submit_in_vain(queue: str | None = None, **how: Any) -> None:
        with pytest.raises(FluxError):
            await submit(queue, **how)

    for queue in (None, "batch", "debug", "later"):
        await submit(queue)
    await submit("debug", ntasks=2, cores_per_task=1)
    await submit_in_vain("nosuch")
    await submit_in_vain(duration=7200.0)
    await submit_in_vain("debug", duration=0.0)
    await submit_in_vain(ntasks=4)
    await submit_in_vain("batch", nnodes=2)
    await submit_in_vain("closed")
    await submit_in_vain("wide", nnodes=1)
    await stage.call(topics.JOB_QUEUE_ENABLE, name="debug", enable=False, reason="full")
    await submit_in_vain("debug")
    await submit("batch")
    await stage.settle(10.0)
    await stage.call(topics.JOB_QUEUE_ENABLE, name="debug", enable=True)
    await stage.call(topics.JOB_QUEUE_START, name="later", start=True)
    await submit("debug")
    await stage.settle(10.0)
    fewer = {**SEVERAL.to_json(), "queues": {"batch": {}}}
    await stage.call(topics.CONFIG_LOAD, config=fewer)
    await submit_in_vain("debug")
    await submit()
    await stage.settle(10.0)


@scenario()
async def no_queues(stage: Stage) -> None:
    """A job that names a queue where there is only the anonymous one."""
    with pytest.raises(FluxError):
        await stage.submit_test({"run_duration": 5.0}, attributes={"system.queue": "batch"})
    await stage.settle()


@made_scenario
def queue_assigned() -> Trace:
    """A job without a queue gets the default one; no instance here has queues yet."""
    job = 1
    asked: Record = made_note(Kind.HOOK.value, "job-manager", hook="job.validate", id=job)
    return hand_made(
        made_event(job, "submit", userid=1000, urgency=16, flags=0, version=1),
        made_event(job, "jobspec-update", **{"attributes.system.queue": "batch"}),
        asked,
        made_event(job, "validate"),
    )
