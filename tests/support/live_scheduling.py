"""Schedulers of a live flux-core, and what a program in its instance asks of it."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from flux_trio.attach.handle import FluxHandle, open_flux

OURS: Final = "attach:"
OVER_S_MAX: Final = 200.0


class Scheduler:
    """The scheduler of the instance: a module of flux-core, or attach:POLICY for ours."""

    def __init__(self, name: str) -> None:
        self.name = name
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
            await flux("module", "load", self.name)

    async def reload(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Let it end, ours by this signal, and begin again."""
        if self._process is None:
            await flux("module", "reload", self.name)
        else:
            await self.end(how)
            await self.start()

    async def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End ours by this signal."""
        assert self._process is not None
        self._process.send_signal(how)
        code = await self._process.wait()
        assert code == (0 if how == signal.SIGTERM else -how), code


async def flux(*args: str) -> None:
    """Run a command of flux-core."""
    await trio.run_process(["flux", *args])


@asynccontextmanager
async def scheduled(name: str) -> AsyncIterator[tuple[FluxHandle, Scheduler]]:
    """A handle at the enclosing instance, and the scheduler that it has from now on."""
    async with open_flux(os.environ["FLUX_URI"], "test") as handle:
        scheduler = Scheduler(name)
        if name != "sched-simple":
            await flux("module", "remove", "sched-simple")
        await scheduler.start()
        yield handle, scheduler
        if scheduler.is_ours:
            await scheduler.end()


async def submit(handle: FluxHandle, spec: dict[str, Any], urgency: int = 16) -> int:
    """Submit a job as its owner does without flux-security; return its id."""
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
