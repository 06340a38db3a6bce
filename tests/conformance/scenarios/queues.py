"""Queues: stopped and started."""

from __future__ import annotations

from flux_trio.messages import topics
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
