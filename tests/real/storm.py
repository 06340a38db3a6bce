"""A storm for a scheduler of a live flux-core: jobs, cancels, drains, reloads; told as JSON.

It is the program of an instance of four nodes of its own (`test_sched.py` starts it):

    python -m tests.real.storm SCHEDULER JOBS SEED HOUSEKEEPING_LOG

What it tells comes from the eventlogs of all jobs and their R, and from the log in which
housekeeping says when a node was ready again.
"""

from __future__ import annotations

import json
import random
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any, Final

import trio

from flux_trio.attach.handle import FluxHandle, Modules
from flux_trio.messages import FluxError, topics
from tests.support.bookings import booked_twice, held_cores, wrong_lives
from tests.support.live_scheduling import Scheduler, be_over, flux, journal, scheduled, submit
from tests.support.sched_script import jobspec

NODES: Final = 4
LOOK_S: Final = 0.25
RELOADED_S_MAX: Final = 8.0
"""A scheduler that is reloaded is there again sooner."""
RAISE_ALL: Final = {
    "dry_run": False,
    "userid": 0xFFFFFFFF,
    "states": 0xFF,
    "severity": 0,
    "type": "cancel",
    "note": "the storm is over",
}
TROUBLE: Final = ("cancel", "cancel", "drain", "queue", "urgency", "update")


class Storm:
    """The jobs of one storm, and what is done to them."""

    def __init__(self, handle: FluxHandle, scheduler: Scheduler, seed: int) -> None:
        self.handle = handle
        self.scheduler = scheduler
        self.draw = random.Random(seed)
        self.jobs: list[int] = []

    async def blow(self, count: int) -> None:
        """Submit jobs in five waves; after each, trouble and a reload."""
        hows = [signal.SIGTERM, signal.SIGKILL]
        for wave in range(5):
            for _ in range(count // 5):
                self.jobs.append(await submit(self.handle, *self._drawn()))
            for _ in range(6):
                await self._trouble(self.draw.choice(TROUBLE))
            await self.scheduler.reload(hows[wave % 2])

    def _drawn(self) -> tuple[dict[str, Any], int]:
        draw = self.draw
        test = {"test": {"run_duration": f"{draw.choice([0.01, 0.05, 0.2])}s"}}
        nnodes = draw.choice([None, None, 1, 2, 3, 4])
        limit = draw.choice([0.0, 5.0, 60.0])
        spec = jobspec(draw.randint(1, 4), nnodes=nnodes, duration=limit, exec=test, cwd="/tmp")
        if nnodes is not None and draw.random() < 0.5:
            spec["resources"][0]["exclusive"] = True
        return spec, draw.choice([16, 16, 8, 31])

    async def _trouble(self, kind: str) -> None:
        """Do one thing that a scheduler has to stand."""
        rank, jobid = str(self.draw.randrange(NODES)), self.draw.choice(self.jobs[-40:])
        match kind:
            case "cancel":
                await self._ask("job-manager.raise", id=jobid, type="cancel", severity=0)
            case "drain":
                await self._ask("resource.drain", targets=rank, reason="storm")
                await self._ask("resource.undrain", targets=rank)
            case "queue":
                queue = {"all": False, "nocheckpoint": False}
                await self._ask("job-manager.queue-start", start=False, reason="storm", **queue)
                await self._ask("job-manager.queue-start", start=True, **queue)
            case "urgency":
                await self._ask("job-manager.urgency", id=jobid, urgency=self.draw.choice([0, 20]))
                await self._ask("job-manager.urgency", id=jobid, urgency=16)
            case "update":
                updates = {"attributes.system.duration": 30.0}
                await self._ask("job-manager.update", id=jobid, updates=updates)

    async def _ask(self, topic: str, **payload: Any) -> None:
        with suppress(FluxError):  # it may be too late
            await self.handle.call(topic, payload, nodeid=0)


async def _last_words(handle: FluxHandle, name: str) -> str:
    """Return what a scheduler that has crashed said last, and leave the instance able to end."""
    done = await trio.run_process(["flux", "dmesg"], capture_stdout=True)
    said = [line for line in done.stdout.decode().splitlines() if f" {name}." in line]
    await flux("module", "load", name)
    await handle.call("job-manager.raiseall", RAISE_ALL, 0)
    return "\n".join(said[-5:])


def kept_by_housekeeping(log: Path) -> dict[tuple[int, int], float]:
    """Return by job and rank when housekeeping ended there."""
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return {(int(jobid), int(rank)): float(end) for jobid, rank, end in lines}


async def _until_crashed(handle: FluxHandle, name: str, storm: trio.CancelScope) -> None:
    """End the storm if a scheduler of flux-core has ended by itself, and is not being reloaded."""
    missing_s = 0.0
    while True:
        await trio.sleep(LOOK_S)
        modules = await handle.ask(topics.MODULE_LIST, Modules, None, 0)
        is_there = name in {each.name for each in modules.mods}
        missing_s = 0.0 if is_there else missing_s + LOOK_S
        if missing_s > RELOADED_S_MAX:
            storm.cancel()


async def _blow_and_rest(handle: FluxHandle, storm: Storm, count: int) -> bool:
    """Play the storm until all is over; return whether the scheduler had crashed."""
    async with trio.open_nursery() as nursery:
        if not storm.scheduler.is_ours:
            name = storm.scheduler.name
            nursery.start_soon(_until_crashed, handle, name, nursery.cancel_scope)
        with suppress(CalledProcessError):  # a module that has crashed cannot be reloaded
            await storm.blow(count)
            await be_over(handle)
            nursery.cancel_scope.cancel()
            return False
        await trio.sleep_forever()
    return True


async def main(name: str, count: int, seed: int, log: Path) -> None:
    async with scheduled(name) as (handle, scheduler):
        storm = Storm(handle, scheduler, seed)
        has_crashed = await _blow_and_rest(handle, storm, count)
        jobs = await journal(handle)
        kept = kept_by_housekeeping(log)
        told: dict[str, Any] = {"jobs": len(jobs), "housekept": len(kept), "leaked": []}
        told["crashed"] = await _last_words(handle, name) if has_crashed else ""
        told["twice"] = booked_twice(held_cores(i, *each, kept) for i, each in jobs.items())
        told["wrong"] = wrong_lives({jobid: events for jobid, (events, _) in jobs.items()})
        told["lost"] = sorted(set(storm.jobs) - jobs.keys())
        told["ran"] = sum(any(e["name"] == "start" for e in events) for events, _ in jobs.values())
        if scheduler.is_ours:
            status = await handle.call("sched.resource-status")
            told["leaked"] = status["allocated"]["execution"]["R_lite"]
        print(json.dumps(told))


if __name__ == "__main__":
    _, name, count, seed, log = sys.argv
    trio.run(partial(main, name, int(count), int(seed), Path(log)))
