"""Eventlogs: plugins that hold jobs up, and every event that a job manager logs."""

from __future__ import annotations

from typing import Any

from flux_trio import jobtap
from flux_trio.messages import FluxError, topics
from tests.support.scenarios import Stage, scenario


class HoldsUp(jobtap.Plugin):
    """What a job's attributes.user tells: dependencies, a prolog, an epilog; or it is refused."""

    name = "holds-up"

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        if "refuse" in wishes(job):
            raise jobtap.Reject("no such luck")

    @jobtap.on("job.state.depend")
    def depend(self, job: jobtap.Job) -> None:
        for each in wishes(job).get("depends", []):
            job.add_dependency(each)

    @jobtap.on("job.state.run")
    def run(self, job: jobtap.Job) -> None:
        if "prolog" in wishes(job):
            job.prolog_start("prolog")

    @jobtap.on("job.state.cleanup")
    def cleanup(self, job: jobtap.Job) -> None:
        if "epilog" in wishes(job):
            job.epilog_start("epilog")

    def post(self, jobid: int, name: str, context: dict[str, Any]) -> None:
        """An event outside of any hook."""
        job = self.jobs.get(jobid)
        assert job is not None
        job.post(name, context)


def wishes(job: jobtap.Job) -> dict[str, Any]:
    """What a job has in attributes.user."""
    found: dict[str, Any] = job.raw_jobspec["attributes"].get("user", {})
    return found


HOLDS_UP = HoldsUp()


async def submit(stage: Stage, **user: Any) -> int:
    """A job of ten seconds with these wishes."""
    return await stage.submit_test({"run_duration": 10.0}, user=user)


@scenario(plugins=[HOLDS_UP])
async def held_up(stage: Stage) -> None:
    """Jobs with dependencies, a prolog and an epilog; one that is refused."""
    post = HOLDS_UP.post
    depends = await submit(stage, depends=["afterany=1", "user=2"])
    job = await submit(stage, prolog=True, epilog=True)
    await stage.settle()
    for description in ("afterany=1", "user=2"):
        post(depends, "dependency-remove", {"description": description})
        await stage.settle()
    post(job, "set-flags", {"flags": ["debug"]})
    post(job, "memo", {"why": "to see", "how": None})
    post(job, "debug.free-request", {"any": ["thing"]})
    post(job, "prolog-finish", {"description": "prolog", "status": 0})
    await stage.settle(12.0)
    post(job, "epilog-finish", {"description": "epilog", "status": 0})
    await stage.settle(12.0)
    try:
        await submit(stage, refuse=True)
    except FluxError:
        await stage.settle()


@scenario()
async def updates(stage: Stage) -> None:
    """Jobs whose duration changes while they wait and while they run."""
    running = await stage.submit(20.0, duration=10.0, ntasks=4)
    waiting = await stage.submit(5.0, duration=10.0)
    await stage.settle()
    for jobid in (running, waiting):
        updates = {"attributes.system.duration": 60.0}
        await stage.call(topics.JOB_UPDATE, id=jobid, updates=updates)
    await stage.settle(60.0)
