"""Plays a story in an instance of flux-core: jobs in a state, an act, and rest, kind by kind.

It is the program of an instance (`judging` starts it):

    python -m tests.real.innocent.play SEED COUNT NUMBER DIRECTORY

`DIRECTORY` gets what the observers say: `whole.trace` and `midst.trace` of `flux module trace`,
`pipe.json` of `flux-trio check -`, `monitor.json` and `monitor.trace` of `flux-trio attach
monitor`, and `played.json`, what was played.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from flux_trio.attach.handle import FluxHandle
from flux_trio.messages import FluxError
from tests.real.innocent.kinds import Kind, Story, draw_stories
from tests.support.live_scheduling import Scheduler, be_over, flux, scheduled, submit
from tests.support.sched_script import jobspec

STATE_S_MAX: Final = 30.0
KIND_S_MAX: Final = 40.0
PATIENCE_S: Final = 4.0
LOOK_S: Final = 0.05
REST_S: Final = 1.5
"""So long nothing happens at the end: what is due then is due for ever."""
TRACED: Final = ("job-manager", "job-exec", "resource")
RUN_S: Final = 0.8
FLUX_TRIO: Final = (sys.executable, "-m", "flux_trio")
CHECK: Final = (*FLUX_TRIO, "check", "--edition", "current", "--known", "flux-core-0.88")

Act: Any = Callable[["Player", list[int]], Awaitable[None]]
ACTS: dict[str, Any] = {}


def act(name: str) -> Callable[[Any], Any]:
    """Register an act, which is given the jobs that are in the state."""

    def register(function: Any) -> Any:
        ACTS[name] = function
        return function

    return register


class Player:
    """Brings jobs into states, and acts."""

    def __init__(self, handle: FluxHandle, scheduler: Scheduler, seed: int, nodes: int) -> None:
        self.handle = handle
        self.scheduler = scheduler
        self.nodes = nodes
        self.draw = random.Random(seed)
        self.lacks: tuple[str, ...] = ()  # modules that the instance does not have
        self.jobs: list[int] = []
        self.refused: list[str] = []

    async def play(self, kind: Kind) -> None:
        """Play one kind, and wait until its jobs are over."""
        jobs = await self._jobs_in(kind.state)
        await ACTS[kind.act](self, jobs)
        if kind.state == "held":
            for jobid in jobs:
                await self.ask("job-manager.urgency", id=jobid, urgency=16)
        await self._be_over(kind)

    async def _be_over(self, kind: Kind) -> None:
        """Wait for the end of all jobs.

        A job in CLEANUP whose execution service was reloaded waits for an event, and one that ran
        then may wait for ever: they are woken, and then canceled, as their owner does it.
        """
        for severity in (7, 0):
            with trio.move_on_after(PATIENCE_S):
                return await be_over(self.handle)
            for jobid in self.jobs:
                with suppress(FluxError):
                    asked = {"id": jobid, "type": "wake", "severity": severity}
                    await self.handle.call("job-manager.raise", asked, 0)
        with trio.move_on_after(KIND_S_MAX):
            return await be_over(self.handle)
        await trio.run_process(["flux", "jobs"], stdout=sys.stderr)
        raise TimeoutError(f"{kind}: jobs are not over after {KIND_S_MAX:g} s")

    async def ask(self, topic: str, nodeid: int = 0, **payload: Any) -> dict[str, Any]:
        """Ask a service; what it refuses, as it may, is noted."""
        try:
            return await self.handle.call(topic, payload or None, nodeid)
        except FluxError as error:
            self.refused.append(f"{topic}: {error}")
            return {}

    async def submit(self, spec: dict[str, Any], urgency: int = 16) -> int:
        jobid = await submit(self.handle, spec, urgency)
        self.jobs.append(jobid)
        return jobid

    async def wait_event(self, jobid: int, *names: str) -> None:
        """Wait until one of these events is in a job's eventlog."""
        wanted = [f'"name":"{name}"' for name in names]
        with trio.fail_after(STATE_S_MAX):
            while True:
                with suppress(FluxError):
                    asked = {"id": jobid, "keys": ["eventlog"], "flags": 0}
                    found = await self.handle.call("job-info.lookup", asked)
                    if any(name in found["eventlog"] for name in wanted):
                        return
                await trio.sleep(LOOK_S)

    def _spec(self, run_s: float, count: int = 1, **more: Any) -> dict[str, Any]:
        test = {"test": {"run_duration": f"{run_s}s"}}
        return jobspec(count, duration=more.pop("duration", 60.0), exec=test, cwd="/tmp", **more)

    async def _jobs_in(self, state: str) -> list[int]:
        """Return three jobs in a state; of the first, the state is sure."""
        run_s = RUN_S if state == "running" else 0.1
        if state == "pending":
            blocker = self._spec(RUN_S, nnodes=self.nodes)
            blocker["resources"][0]["exclusive"] = True
            await self.wait_event(await self.submit(blocker), "alloc")
        shapes = [{"count": 1}, {"count": 2, "nnodes": 1}, {"count": 1, "nnodes": 2}]
        urgency = 0 if state == "held" else 16
        jobs = [await self.submit(self._spec(run_s, **shape), urgency) for shape in shapes]
        match state:
            case "pending" | "held":
                await self.wait_event(jobs[0], "priority")
            case "running":
                await self.wait_event(jobs[0], "start")
            case "ending":
                await self.wait_event(jobs[0], "finish", "release")
        return jobs


# --- acts at jobs


@act("memo")
async def memo(player: Player, jobs: list[int]) -> None:
    for jobid in jobs:
        await player.ask("job-manager.memo", id=jobid, memo={"note": "hello", "n": {"a": 1}})
    await player.ask("job-manager.memo", id=jobs[0], memo={"n": None})


@act("urgency")
async def urgency(player: Player, jobs: list[int]) -> None:
    for jobid, value in zip(jobs, (20, 31, 8), strict=True):
        await player.ask("job-manager.urgency", id=jobid, urgency=value)


@act("hold")
async def hold(player: Player, jobs: list[int]) -> None:
    await player.ask("job-manager.urgency", id=jobs[0], urgency=0)
    await player.ask("job-manager.urgency", id=jobs[0], urgency=16)


@act("update")
async def update(player: Player, jobs: list[int]) -> None:
    updates = {"attributes.system.duration": 90.0}
    await player.ask("job-manager.update", id=jobs[0], updates=updates)


@act("cancel")
async def cancel(player: Player, jobs: list[int]) -> None:
    for jobid in jobs[:2]:
        await player.ask("job-manager.raise", id=jobid, type="cancel", severity=0)


@act("exception")
async def exception(player: Player, jobs: list[int]) -> None:
    await player.ask("job-manager.raise", id=jobs[0], type="test", severity=3, note="of no weight")


@act("kill")
async def kill(player: Player, jobs: list[int]) -> None:
    await player.ask("job-manager.kill", id=jobs[0], signum=int(signal.SIGTERM))


# --- acts at queues and beside jobs


@act("stop")
async def stop(player: Player, _jobs: list[int]) -> None:
    flags = {"all": False, "nocheckpoint": False}
    await player.ask("job-manager.queue-start", start=False, reason="innocent", **flags)
    await player.submit(player._spec(0.1))
    await player.ask("job-manager.queue-start", start=True, **flags)


@act("disable")
async def disable(player: Player, _jobs: list[int]) -> None:
    await player.ask("job-manager.queue-enable", enable=False, reason="innocent", all=False)
    with suppress(FluxError):
        await player.submit(player._spec(0.1))
    await player.ask("job-manager.queue-enable", enable=True, all=False)


@act("limits")
async def limits(player: Player, _jobs: list[int]) -> None:
    """Another configuration is loaded, with a limit that a job breaks, and then the old one."""
    config = await player.handle.call("config.get", None, 0)
    limited = config | {"policy": {"limits": {"job-size": {"max": {"ncores": 3}}}}}
    await player.ask("config.load", **limited)
    with suppress(FluxError):
        await player.submit(player._spec(0.1, 4))
    await player.submit(player._spec(0.1, 2))
    await player.ask("config.load", **config)


@act("list")
async def list_(player: Player, _jobs: list[int]) -> None:
    await flux("jobs", "-a", "--no-header")
    await flux("resource", "list")


@act("purge")
async def purge(player: Player, _jobs: list[int]) -> None:
    await player.ask("job-manager.purge", age_limit=-1.0, num_limit=2, batch=100, force=True)


@act("depend")
async def depend(player: Player, jobs: list[int]) -> None:
    """A job comes after another one, and one after some time."""
    after = [{"scheme": "afterany", "value": str(jobs[0])}]
    await player.submit(player._spec(0.1, dependencies=after))
    await player.submit(player._spec(0.1), 20)


@act("unsatisfiable")
async def unsatisfiable(player: Player, _jobs: list[int]) -> None:
    for more in ({"constraints": {"properties": ["nosuch"]}}, {"nnodes": 99}):
        with suppress(FluxError):
            await player.submit(player._spec(0.1, **more))


# --- acts at nodes


@act("drain")
async def drain(player: Player, _jobs: list[int]) -> None:
    rank = str(player.draw.randrange(player.nodes))
    await player.ask("resource.drain", targets=rank, reason="innocent")
    await player.submit(player._spec(0.1, 1, nnodes=1))
    await trio.sleep(0.2)
    await player.ask("resource.undrain", targets=rank)


@act("drain all")
async def drain_all(player: Player, _jobs: list[int]) -> None:
    every = f"0-{player.nodes - 1}"
    await player.ask("resource.drain", targets=every, reason="innocent")
    await player.submit(player._spec(0.1))
    await trio.sleep(0.2)
    await player.ask("resource.undrain", targets=every)


@act("nested")
async def nested(player: Player, _jobs: list[int]) -> None:
    """A job is an instance of its own, which runs a job."""
    await flux("run", "-n1", "-t", "60s", "flux", "start", "flux", "run", "true")


# --- reloads


@act("reload sched")
async def reload_sched(player: Player, _jobs: list[int]) -> None:
    await player.scheduler.reload()


@act("kill sched")
async def kill_sched(player: Player, _jobs: list[int]) -> None:
    """Ours is killed; a module of flux-core can only be reloaded."""
    await player.scheduler.reload(signal.SIGKILL)


@act("reload resource")
async def reload_resource(player: Player, _jobs: list[int]) -> None:
    async with without_sched(player):
        await flux("module", "reload", "resource")


@asynccontextmanager
async def without_sched(player: Player) -> AsyncIterator[None]:
    """The scheduler, which would end with the resource module, is away meanwhile."""
    if player.scheduler.is_ours:
        await player.scheduler.end()
    else:
        await player.scheduler.remove()
    yield
    if player.scheduler.is_ours:
        await player.scheduler.start()
    else:
        await player.scheduler.load()


@act("reload job-manager")
async def reload_job_manager(player: Player, _jobs: list[int]) -> None:
    """All that talk to it are removed before it, and loaded after it."""
    others = [
        name
        for name in ("job-ingest", "job-list", "job-info", "job-exec")
        if name not in player.lacks
    ]
    async with without_sched(player):
        for name in others:
            await flux("module", "remove", name)
        await flux("module", "reload", "job-manager")
        for name in reversed(others):
            await flux("module", "load", name)


def _reloading(*names: str) -> Any:
    async def reload(player: Player, _jobs: list[int]) -> None:
        for name in names:
            if name == "sched":
                await player.scheduler.reload()
            elif name not in player.lacks:
                await flux("module", "reload", name)

    return reload


for _names in (
    *(("job-exec",), ("job-list",), ("job-info",), ("job-ingest",)),
    *(("sched", "job-exec"), ("job-list", "job-info")),
    *(("job-ingest", "sched"), ("job-exec", "job-list")),
):
    ACTS[f"reload {' and '.join(_names)}"] = _reloading(*_names)


# --- observers


class Observers:
    """What watches while the story is played; each begins at its time, and all end at rest."""

    def __init__(self, story: Story, directory: Path) -> None:
        self._story = story
        self._directory = directory
        self._began: list[tuple[trio.Process, bool]] = []
        scheduler = story.setting.scheduler
        self._traced = [*TRACED, *([] if scheduler.startswith("attach:") else [scheduler])]

    async def before(self, number: int) -> None:
        """Begin what begins before this kind."""
        if number == 0:
            await self._begin("exec flux module trace --full", *self._traced, to="whole.trace")
        if number == self._story.midst:
            await self._begin("exec flux module trace --full", to="midst.trace")
            check = shlex.join([*CHECK, "--at-rest", "--format", "json", "-"])
            trace = " ".join(("flux module trace --full", *self._traced))
            await self._begin(f"{trace} | {check}", to="pipe.json", is_pipe=True)
        if number == self._story.joined:
            report, trace = (str(self._directory / f"monitor.{end}") for end in ("json", "trace"))
            monitor = [*FLUX_TRIO, "attach", "monitor", "--json", report, "--trace", trace]
            await self._begin("exec", shlex.join(monitor), to="monitor.text")
            with trio.fail_after(STATE_S_MAX):
                while "watches" not in (self._directory / "monitor.text").read_text():  # noqa: ASYNC110
                    await trio.sleep(LOOK_S)

    async def _begin(self, *words: str, to: str, is_pipe: bool = False) -> None:
        with (self._directory / to).open("wb") as file:
            errors = file if to.endswith(".text") else None
            process = await trio.lowlevel.open_process(
                " ".join(words), shell=True, stdout=file, stderr=errors, start_new_session=True
            )
        self._began.append((process, is_pipe))
        await trio.sleep(1.5)  # nothing tells that a trace has begun

    async def end(self) -> None:
        """End all; of a pipe only the trace is ended, so that its reader sees the end."""
        for process, is_pipe in self._began:
            if is_pipe:
                await trio.run_process(["pkill", "-INT", "-P", str(process.pid), "-f", "trace"])
            else:
                process.send_signal(signal.SIGINT)
        with trio.fail_after(60):
            for process, _ in self._began:
                await process.wait()


async def main(story: Story, directory: Path) -> None:
    async with scheduled(story.setting.scheduler) as (handle, scheduler):
        player = Player(handle, scheduler, story.seed, story.setting.brokers)
        observers = Observers(story, directory)
        played = []
        for number, kind in enumerate(story.kinds):
            await observers.before(number)
            began = trio.current_time()
            await player.play(kind)
            print(f"{kind}: {trio.current_time() - began:.1f} s", file=sys.stderr)
            played.append({"kind": str(kind), "seconds": trio.current_time() - began})
        await trio.sleep(REST_S)
        await observers.end()
    told = {"played": played, "jobs": len(player.jobs), "refused": player.refused}
    (directory / "played.json").write_text(json.dumps(told))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    _, seed, count, number, directory = sys.argv
    trio.run(partial(main, draw_stories(int(seed), int(count))[int(number)], Path(directory)))
