"""A scheduler of a live flux-core is killed while jobs run, and another takes over; told as JSON.

It is the program of an instance of its own (`test_sched.py` starts it):

    python -m tests.real.killed SCHEDULER JOBS FILE

Half of the jobs run, each on a core, when it is killed; the others wait. Each job writes a line to
FILE.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from functools import partial
from typing import Any

import trio

from flux_trio.attach.handle import FluxHandle
from tests.support.bookings import booked_twice, held_cores, wrong_lives
from tests.support.live_scheduling import be_over, journal, scheduled, submit
from tests.support.sched_script import jobspec


def job(release: trio.Path, file: trio.Path) -> dict[str, Any]:
    """A job that says that it runs, and ends when the file `release` is there."""
    script = f"echo $FLUX_JOB_ID >> {file}; until [ -e {release} ]; do sleep 0.2; done"
    spec = jobspec(cwd="/tmp", environment={"PATH": "/usr/bin:/bin"})
    spec["tasks"][0]["command"] = ["sh", "-c", script]
    return spec


async def running(handle: FluxHandle, count: int) -> None:
    """Wait until so many jobs run."""
    async with handle.stream("job-manager.events-journal", {"full": True}) as responses:
        async for payload in responses:
            count -= sum(each["name"] == "start" for each in payload["events"])
            if count <= 0:
                return


async def main(name: str, count: int, file: trio.Path) -> None:
    release = file.with_name("release")
    async with scheduled(name) as (handle, scheduler):
        submitted = [await submit(handle, job(release, file)) for _ in range(count)]
        await running(handle, count // 2)
        await scheduler.reload(signal.SIGKILL)
        await release.touch()
        await be_over(handle)
        jobs = await journal(handle)
        ran = Counter((await file.read_text()).split())
        told: dict[str, Any] = {"jobs": len(jobs), "ran": len(ran)}
        told["more than once"] = [jobid for jobid, times in ran.items() if times > 1]
        told["lost"] = sorted(set(submitted) - jobs.keys())
        told["wrong"] = wrong_lives({jobid: events for jobid, (events, _) in jobs.items()})
        told["twice"] = booked_twice(held_cores(i, *each, {}) for i, each in jobs.items())
        told["failed"] = [
            jobid
            for jobid, (events, _) in jobs.items()
            if not any(e["name"] == "finish" and e["context"]["status"] == 0 for e in events)
        ]
        print(json.dumps(told))


if __name__ == "__main__":
    _, name, count, file = sys.argv
    trio.run(partial(main, name, int(count), trio.Path(file)))
