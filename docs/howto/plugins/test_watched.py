"""A plugin in a whole instance, whose every message is judged."""

import trio
from short_first import ShortFirst
from trio.testing import MockClock

from flux_trio.formats import Jobspec
from flux_trio.messages import topics
from flux_trio.protocols import JobFlag
from flux_trio.testing import simulated_instance, watched

JOBSPEC = Jobspec.from_command(["sleep", "60"], duration=60.0).to_json()


async def submit_and_wait():
    with watched():
        async with (
            simulated_instance(plugins=[ShortFirst]) as instance,
            instance.connect() as handle,
        ):
            job = {"jobspec": JOBSPEC, "flags": JobFlag.WAITABLE}
            submitted = await handle.call(topics.INGEST_SUBMIT, job)
            ended = await handle.call(topics.JOB_WAIT, {"id": submitted["id"]})
            assert ended["success"]


def test_a_job_runs_and_no_clause_is_broken():
    trio.run(submit_and_wait, clock=MockClock(autojump_threshold=0))
