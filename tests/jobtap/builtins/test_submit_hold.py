"""submit-hold."""

from __future__ import annotations

from flux_trio.jobtap.builtins.submit_hold import SubmitHold
from flux_trio.messages import topics
from flux_trio.testing import USERID
from tests.support.playing import context, names, simulated_jobs


async def test_every_job_is_held_until_it_gets_an_urgency(autojump_clock):
    async with simulated_jobs(plugins=[SubmitHold()]) as jobs:
        job = await jobs.submit()
        events = await jobs.events(job, "priority")
        assert names(events) == ["submit", "validate", "urgency", "depend", "priority"]
        assert context(events, "urgency") == {"userid": USERID, "urgency": 0}
        assert context(events, "priority") == {"priority": 0}
        await jobs.call(topics.JOB_URGENCY, {"id": job, "urgency": 16})
        assert "finish" in names(await jobs.events(job))


async def test_job_that_is_held_already_is_left_alone(autojump_clock):
    async with simulated_jobs(plugins=[SubmitHold()]) as jobs:
        assert "urgency" not in names(await jobs.events(await jobs.submit(urgency=0), "priority"))
