"""The program of an instance: plays the kinds of a story, one after the other.

    python -m tests.real.conformance.playing DIRECTORY

DIRECTORY has `told.json`: the scheduler, the kinds, the modules to trace and those that are not
there. It gets `whole.trace`, and `played.json`: what went wrong in which kind, if anything did.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from flux_trio.attach.handle import FluxHandle
from flux_trio.messages import FluxError
from tests.real.innocent.kinds import Kind
from tests.real.innocent.play import Player
from tests.support.live_scheduling import flux, scheduled

TRACE_BEGINS_S: Final = 1.5  # nothing tells that a trace has begun
REST_S: Final = 1.5
"""So long nothing happens at the end: what is due then is due for ever."""
CANCEL_S_MAX: Final = 20.0
WRONG: Final = (FluxError, OSError, AssertionError, TimeoutError, trio.TooSlowError)


@asynccontextmanager
async def traced(modules: list[str], path: Path) -> AsyncIterator[None]:
    """Have the messages of these modules written; of none in an instance that traces itself."""
    if not modules:
        yield
        return
    with path.open("wb") as file:
        command = ["flux", "module", "trace", "--full", *modules]
        process = await trio.lowlevel.open_process(command, stdout=file)
    await trio.sleep(TRACE_BEGINS_S)
    yield
    process.send_signal(signal.SIGINT)
    await process.wait()


async def main(directory: Path) -> None:
    told = json.loads((directory / "told.json").read_text())
    wrong: dict[str, str] = {}
    async with scheduled(told["scheduler"]) as (handle, scheduler):
        player = Player(handle, scheduler, told["seed"], told["nodes"])
        player.lacks = tuple(told["lacks"])
        async with traced(told["traced"], directory / "whole.trace"):
            await _reload_all(player)
            for words in told["kinds"]:
                kind = Kind(*words)
                began = trio.current_time()
                try:
                    await player.play(kind)
                except (*WRONG, subprocess.CalledProcessError) as error:
                    wrong[str(kind)] = f"{type(error).__name__}: {error}"
                    await _cancel_all(handle)
                print(f"{kind}: {trio.current_time() - began:.1f} s", file=sys.stderr)
            await trio.sleep(REST_S)
    found: dict[str, Any] = {"wrong": wrong, "refused": player.refused, "njobs": len(player.jobs)}
    (directory / "played.json").write_text(json.dumps(found))


async def _reload_all(player: Player) -> None:
    """Load the execution service and the scheduler again, so that their beginning is seen."""
    await flux("module", "reload", "job-exec")
    await player.scheduler.reload()


async def _cancel_all(handle: FluxHandle) -> None:
    with suppress(FluxError, trio.TooSlowError), trio.fail_after(CANCEL_S_MAX):
        everyone = {"userid": os.getuid(), "states": 62, "severity": 0, "type": "cancel"}
        await handle.call("job-manager.raiseall", {**everyone, "dry_run": False})
        await handle.call("job-manager.drain")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    trio.run(partial(main, Path(sys.argv[1])))
