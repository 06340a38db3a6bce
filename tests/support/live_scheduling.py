"""Schedulers of a live flux-core, and what a program in its instance asks of it."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from flux_trio.attach.handle import FluxHandle, open_flux
from flux_trio.client import Client, open_client

OURS: Final = "attach:"
FLUXION: Final = {
    "sched-fluxion-resource": ("load-allowlist=node,core,gpu",),
    "sched-fluxion-feasibility": (),
    "sched-fluxion-qmanager": (),
}
"""The modules of fluxion with their arguments, in the order of loading."""
OWN_SOCKET: Final = "STORY_OWN_SOCKET"
"""Where an instance of flux-trio without a native door is: flux-trio's own programs are used."""
FLUXION_MODULES: Final = "FLUXION_MODULES"
"""The directories where they are, with colons, if flux-core does not find them."""
OVER_S_MAX: Final = 200.0


def fluxion_path(module: str) -> str | None:
    """Return the file of a module of fluxion; None if it is not there."""
    places = os.environ.get(FLUXION_MODULES, "").split(":")
    found = (Path(place) / f"{module}.so" for place in places if place)
    return next((str(path) for path in found if path.exists()), None)


def modules_of(scheduler: str) -> dict[str, list[str]]:
    """Return the modules of a scheduler by name, and what `flux module load` is given for each.

    It is `fluxion`, a name of flux-core's, or the path of a file.
    """
    if scheduler == "fluxion":
        return {name: [fluxion_path(name) or name, *args] for name, args in FLUXION.items()}
    return {Path(scheduler).name.removesuffix(".py"): [scheduler]}


class Scheduler:
    """The scheduler of the instance: a module of flux-core, or attach:POLICY for ours."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.modules = modules_of(name)
        self.is_ours = name.startswith(OURS)
        self._process: trio.Process | None = None

    async def start(self) -> None:
        """Return when it serves."""
        if self.is_ours:
            command = [sys.executable, "-m", "flux_trio", "attach", "sched"]
            command += ["--policy", self.name.removeprefix(OURS)]
            self._process = await trio.lowlevel.open_process(command, stderr=-1)
            assert self._process.stderr is not None
            line = await self._process.stderr.receive_some()
            assert b"schedules by" in line, line
        elif self.name != "sched-simple":
            await self.load()

    async def load(self) -> None:
        """Load the modules of a scheduler of others."""
        for args in self.modules.values():
            await flux("module", "load", *args)

    async def remove(self) -> None:
        """Remove the modules of a scheduler of others."""
        for name in reversed(self.modules):
            await flux("module", "remove", name)

    async def reload(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Let it end, ours by this signal, and begin again."""
        if self._process is None:
            await self.remove()
            await self.load()
        else:
            await self.end(how)
            await self.start()

    async def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End ours by this signal."""
        assert self._process is not None
        self._process.send_signal(how)
        code = await self._process.wait()
        assert code == (0 if how == signal.SIGTERM else -how), code


class OwnHandle:
    """A client of flux-trio, asked as an instance of flux-core is."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, topic: str, payload: Any = None, _nodeid: int = 0) -> dict[str, Any]:
        if topic == "config.load":
            payload = {"config": payload}
        answer = await self._client.call(topic, payload)
        return answer["config"] if topic == "config.get" else answer


async def flux(*args: str) -> None:
    """Run a command of flux-core, or the same of flux-trio."""
    program = [sys.executable, "-m", "flux_trio"] if OWN_SOCKET in os.environ else ["flux"]
    await trio.run_process([*program, *args])


@asynccontextmanager
async def opened() -> AsyncIterator[FluxHandle | OwnHandle]:
    """A handle at the enclosing instance."""
    if OWN_SOCKET in os.environ:
        async with open_client(os.environ[OWN_SOCKET]) as client:
            yield OwnHandle(client)
    else:
        async with open_flux(os.environ["FLUX_URI"], "test") as handle:
            yield handle


@asynccontextmanager
async def scheduled(name: str) -> AsyncIterator[tuple[Any, Scheduler]]:
    """A handle at the enclosing instance, and the scheduler that it has from now on."""
    async with opened() as handle:
        scheduler = Scheduler(name)
        if name != "sched-simple":
            await flux("module", "remove", "sched-simple")
        await scheduler.start()
        yield handle, scheduler
        if scheduler.is_ours:
            await scheduler.end()


async def submit(handle: FluxHandle | OwnHandle, spec: dict[str, Any], urgency: int = 16) -> int:
    """Submit a job as its owner does without flux-security; return its id."""
    if isinstance(handle, OwnHandle):
        answer = await handle.call("job-ingest.submit", {"jobspec": spec, "urgency": urgency})
        return int(answer["id"])
    header = b"version\0i1\0userid\0i%d\0mechanism\0snone\0" % os.getuid()
    parts = [base64.b64encode(part).decode() for part in (header, json.dumps(spec).encode())]
    signed = ".".join([*parts, "none"])
    asked = {"J": signed, "urgency": urgency, "flags": 0}
    answer = await handle.call("job-ingest.submit", asked)
    return int(answer["id"])


async def be_over(handle: FluxHandle) -> None:
    """Wait for the end of all jobs and of housekeeping."""
    with trio.fail_after(OVER_S_MAX):
        await handle.call("job-manager.drain")
        while (  # noqa: ASYNC110 - nothing tells of its end
            await handle.call("job-manager.stats-get")
        )["housekeeping"]["running"]:
            await trio.sleep(0.05)


async def journal(handle: FluxHandle) -> dict[int, tuple[list[Any], Any]]:
    """Return the events and R of each job so far."""
    found: dict[int, tuple[list[Any], Any]] = {}
    async with handle.stream("job-manager.events-journal", {"full": True}) as responses:
        async for payload in responses:
            if payload["id"] == -1:
                break
            events, r = found.setdefault(payload["id"], ([], None))
            found[payload["id"]] = (events + payload["events"], payload.get("R", r))
    return found
