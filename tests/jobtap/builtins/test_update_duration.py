"""update-duration."""

from __future__ import annotations

import pytest

from flux_trio.config import parse_config
from flux_trio.messages import topics
from flux_trio.testing import simulated_instance
from tests.support.playing import context, guest_of, names, simulated_jobs

HOUR = 3600.0
LIMITED = parse_config('[policy.limits]\nduration = "1h"')


async def test_user_may_update_a_pending_job_within_the_limits(autojump_clock):
    async with simulated_instance(config=LIMITED) as instance, guest_of(instance) as guest:
        held = await guest.submit(duration=60, urgency=0)
        assert await guest.update(held, duration=HOUR) == ""
        events = await guest.events(held, "jobspec-update")
        assert context(events, "jobspec-update") == {"attributes.system.duration": HOUR}
        text = await guest.update(held, duration=HOUR + 60)
        assert text == "requested duration (61m) exceeds policy limit of 1h"


async def test_owner_may_update_beyond_the_limits(autojump_clock):
    async with simulated_jobs(config=LIMITED) as jobs:
        held = await jobs.submit(duration=60, urgency=0)
        assert await jobs.update(held, duration=2 * HOUR) == ""


async def test_only_the_owner_may_update_a_running_job(autojump_clock):
    async with simulated_jobs() as jobs, guest_of(jobs.instance) as guest:
        running = await guest.submit(duration=60, seconds=50)
        await guest.events(running, "start")
        text = "duration update of running job requires instance owner privileges"
        assert await guest.update(running, duration=120) == text
        assert await jobs.update(running, duration=120) == ""
        assert "resource-update" in names(await guest.events(running))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1, "duration must not be negative"),
        ("1h", "attributes.system.duration: expected a number of seconds, got '1h'"),
        (True, "attributes.system.duration: expected a number of seconds, got True"),
    ],
)
async def test_what_is_no_duration_is_refused(value: object, text: str, autojump_clock):
    async with simulated_jobs() as jobs:
        held = await jobs.submit(urgency=0)
        assert await jobs.update(held, duration=value) == text


async def test_owner_may_be_bound_as_everybody_is(autojump_clock):
    async with simulated_jobs(config=LIMITED) as jobs:
        name = ".update-duration"
        again = {"remove": name, "load": name, "conf": {"owner-allow-any": False}}
        await jobs.call(topics.JOB_JOBTAP, again)
        jobs = jobs
        held = await jobs.submit(duration=60, urgency=0)
        text = "requested duration (2h) exceeds policy limit of 1h"
        assert await jobs.update(held, duration=2 * HOUR) == text
        running = await jobs.submit(duration=60, seconds=50)
        await jobs.events(running, "start")
        text = "duration update of running job requires instance owner privileges"
        assert await jobs.update(running, duration=120) == text
