"""Eventlogs: plugins that hold jobs up, and every event that a job manager logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from flux_trio.jobtap import Handler, Plugin, PluginContext
from flux_trio.messages import FluxError, topics
from flux_trio.protocols import HookAnswer, JobView
from tests.support.scenarios import Stage, scenario


class HoldsUp(Plugin):
    """What a job's attributes.user tells: dependencies, a prolog, an epilog; or it is refused."""

    name = "holds-up"

    def loaded(self, context: PluginContext) -> None:
        self.post = context.post

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "job.validate": self.validate,
            "job.state.depend": self.depend,
            "job.state.run": self.run,
            "job.state.cleanup": self.cleanup,
        }

    def validate(self, job: JobView) -> HookAnswer | None:
        return HookAnswer(reject="no such luck") if "refuse" in wishes(job) else None

    def depend(self, job: JobView) -> HookAnswer | None:
        depends = wishes(job).get("depends", [])
        added = [("dependency-add", {"description": each}) for each in depends]
        return HookAnswer(posts=tuple(added))

    def run(self, job: JobView) -> HookAnswer | None:
        if "prolog" not in wishes(job):
            return None
        return HookAnswer(posts=(("prolog-start", {"description": "prolog"}),))

    def cleanup(self, job: JobView) -> HookAnswer | None:
        if "epilog" not in wishes(job):
            return None
        return HookAnswer(posts=(("epilog-start", {"description": "epilog"}),))


def wishes(job: JobView) -> dict[str, Any]:
    """What a job has in attributes.user."""
    jobspec = msgspec.json.decode(job.current_jobspec_bytes())
    found: dict[str, Any] = jobspec["attributes"].get("user", {})
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
