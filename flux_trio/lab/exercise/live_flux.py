"""A live flux-core whose job manager is exercised: our scheduler and execution service attach.

Its job manager is loaded by a tap, which writes the trace that is judged; it is the program. Jobs
are simulated by our execution service, so that nothing of them is left when the instance is killed.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from flux_trio.attach.exec.run import run as run_exec
from flux_trio.attach.handle import URI_VARIABLE, FluxHandle, open_flux
from flux_trio.attach.sched import run as run_sched
from flux_trio.broker import ServiceExit
from flux_trio.formats.signed_jobspec import sign
from flux_trio.lab.exercise.program import ProgramNotStarted
from flux_trio.lab.exercise.stage import Stage
from flux_trio.messages import FluxError, topics
from flux_trio.process.groups import unwrapping
from flux_trio.trace import Record
from flux_trio.trace.module_trace import LiveTap
from flux_trio.trace.record import records_from_json
from flux_trio.transports import TransportError

NBROKERS: Final = 4
CONFIG: Final = """
[resource]
noverify = true
[[resource.config]]
hosts = "node[0-3]"
cores = "0-3"
"""
POLICY: Final = "fifo"
LOOK_S: Final = 0.02  # how often the trace is read
START_S_MAX: Final = 60.0
END_S_MAX: Final = 10.0  # of a wait that no cancel ends: for the module, or for what got SIGKILL
GONE_S: Final = 3.0
TOLD: Final = "told"
"""The file in which the initial program of the instance says where it is, once there is room."""
_BEGIN: Final = """
flux module remove sched-simple && flux module remove job-exec && flux module remove job-manager
echo $FLUX_URI >{told}.new; echo $FLUX_MODULE_PATH >>{told}.new; mv {told}.new {told}
exec sleep infinity
"""
_TAP: Final = """#!/bin/sh
exec {python} -c 'from flux_trio.cli.attach.tap import main; main()' "$@"
"""


class Live:
    """A flux-core at `uri`, without a scheduler, an execution service and a job manager."""

    def __init__(self, uri: str, module_path: str, directory: Path) -> None:
        self.uri = uri
        self.directory = directory
        self.trace = directory / "trace.jsonl"
        self._module_path = module_path
        self._tap = directory / "tap"
        self._tap.write_text(_TAP.format(python=shlex.quote(sys.executable)))
        self._tap.chmod(0o700)

    async def load_manager(self) -> None:
        """Load the job manager by a tap."""
        name = f"{topics.JOB_MANAGER}.so"
        places = (Path(each, name) for each in self._module_path.split(":"))
        path = next((str(each) for each in places if each.exists()), name)
        trace = f"tap-trace={self.trace}"
        await self.flux("module", "load", f"--loader={self._tap}", path, trace)

    async def flux(self, *words: str) -> None:
        """Run a command of flux-core. Raises ProgramNotStarted."""
        environ = {**os.environ, URI_VARIABLE: self.uri}
        done = await trio.run_process(
            ["flux", *words], env=environ, check=False, capture_stdout=True, capture_stderr=True
        )
        if done.returncode:
            raise ProgramNotStarted(f"flux {words[0]} {words[1]}: {done.stderr.decode().strip()}")


class TappedManager:
    """The job manager of flux-core as the program: see `Driven`. It is never killed, but unloaded.

    flux-core takes the sudden end of a module for its own.
    """

    returncode: int | None = None

    def __init__(self, live: Live) -> None:
        self._live = live
        self._is_loaded = False

    @property
    def is_running(self) -> bool:
        return self._is_loaded

    def pace(self) -> float:
        return 1.0

    async def start(self) -> None:
        await self._live.load_manager()
        self._is_loaded = True

    async def wait(self) -> None:
        """Return at once: it ends by no refusal of an exercise."""

    async def end(self) -> None:
        if self._is_loaded:
            self._is_loaded = False
            with trio.move_on_after(END_S_MAX, shield=True):
                await self._live.flux("module", "remove", topics.JOB_MANAGER)

    kill = end


class Attached:
    """Our scheduler and execution service; each has a connection of its own, and can be ended."""

    def __init__(self, live: Live, nursery: trio.Nursery) -> None:
        self._live = live
        self._nursery = nursery
        self._scopes: dict[str, trio.CancelScope] = {}
        self.failure = ""
        """Why one of them has ended by itself."""

    def begin(self, module: str) -> None:
        self._nursery.start_soon(self._run, module)

    def end(self, module: str) -> bool:
        """End one of them; return whether it was there: it may have ended by itself."""
        scope = self._scopes.pop(module, None)
        if scope is not None:
            scope.cancel()
        return scope is not None

    async def _run(self, module: str) -> None:
        with trio.CancelScope() as scope:
            self._scopes[module] = scope
            try:
                with unwrapping(FluxError, ServiceExit, TransportError):
                    async with open_flux(self._live.uri, module) as flux:
                        await self._serve(module, flux)
            except (FluxError, ServiceExit, TransportError) as error:
                self.failure = f"{module}: {error}"
        if self._scopes.get(module) is scope:
            del self._scopes[module]

    async def _serve(self, module: str, flux: FluxHandle) -> None:
        if module == topics.SCHED:
            await run_sched(flux, POLICY, lambda _: None)
        else:
            await run_exec(flux, lambda _: None, directory=self._live.directory / "shells")


class LiveStage(Stage):
    """A stage whose modules are ours, attached, and whose records a tap has written."""

    attached: Attached

    async def serve(self) -> None:
        """Load the job manager; our execution service ends with it, and is begun again."""
        topic = topics.EXEC_HELLO
        before = self.seen.answered[topic]
        await super().serve()
        self.attached.begin(topics.JOB_EXEC)
        await self.until(f"answer to {topic}", lambda: self.seen.answered[topic] > before)

    async def remove(self, module: str) -> None:
        topic = topics.JOB_MANAGER_DISCONNECT
        before = self.seen.taken[topic]
        if self.attached.end(module):
            with trio.move_on_after(GONE_S):  # a service that was asked nothing may go unheard
                await self.until(f"{topic} of {module}", lambda: self.seen.taken[topic] > before)

    async def load(self, module: str) -> None:
        topic = self.first_answer_to(module)
        before = self.seen.answered[topic]
        self.attached.begin(module)
        await self.until(f"answer to {topic}", lambda: self.seen.answered[topic] > before)

    async def reload(self, module: str) -> None:
        await self.remove(module)
        await self.load(module)

    def submission(self, jobspec: Mapping[str, Any], urgency: int, flags: int) -> dict[str, Any]:
        return {
            "J": sign(os.getuid(), msgspec.json.encode(jobspec)),
            "urgency": urgency,
            "flags": flags,
        }


@asynccontextmanager
async def live_flux(directory: Path) -> AsyncIterator[Live]:
    """Start an instance of four brokers; kill it at the end. Raises ProgramNotStarted."""
    config, told = directory / "config.toml", directory / TOLD
    config.write_text(CONFIG)
    command = ["flux", "start", "-s", str(NBROKERS), f"--test-hosts=node[0-{NBROKERS - 1}]"]
    command += [f"--config-path={config}", "sh", "-c", _BEGIN.format(told=shlex.quote(str(told)))]
    environ = {**os.environ, "TMPDIR": str(directory)}
    environ.pop(URI_VARIABLE, None)
    try:
        process = await trio.lowlevel.open_process(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True
        )
    except OSError as error:
        raise ProgramNotStarted(f"{command[0]}: {error.strerror}") from None
    try:
        with trio.move_on_after(START_S_MAX):
            while not _exists(told) and process.poll() is None:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(LOOK_S)
        if not told.exists():
            raise ProgramNotStarted(f"flux start: no instance within {START_S_MAX:g} s")
        uri, module_path = told.read_text().splitlines()
        yield Live(uri, module_path, directory)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with trio.move_on_after(END_S_MAX, shield=True):
            await process.wait()


def _exists(path: Path) -> bool:
    return path.exists()


async def follow(path: Path, nbefore: int, take: Callable[[Record], object]) -> None:
    """Pass on the records that a tap writes to a file, for ever, as they are complete."""
    tap, rest = LiveTap(nbefore), b""
    while not _exists(path):  # noqa: ASYNC110 - nobody tells
        await trio.sleep(LOOK_S)
    with path.open("rb") as file:
        now = 0.0
        while True:
            *lines, rest = (rest + file.read()).split(b"\n")
            for line in lines:
                for record in records_from_json(line):
                    now = max(now, record.t)
                    tap.put(record)
            for record in tap.records(now if lines else time.time()):
                take(record)
            await trio.sleep(LOOK_S)
