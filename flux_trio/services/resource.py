"""The resource service: `ResourceCore` under Trio, and the processes of the check command.

The command of `[resource.check]` runs in a few processes at a time, with a time limit. Its
environment has the target: `FLUX_TRIO_RANK` and `FLUX_TRIO_HOST`. Exit code 0 means that the target
has no problem. Otherwise the target is down, and the reason is the first line of standard output,
or else of standard error.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import trio

from flux_trio.broker import Handle
from flux_trio.clock import Durations
from flux_trio.config import CheckConfig
from flux_trio.cores.resource.checks import Checked, NotChecked, RunCheck
from flux_trio.cores.resource.core import ResourceCore
from flux_trio.cores.resource.definition import FileRead, Kept, ReadFile
from flux_trio.editions import CLASSIC, Edition
from flux_trio.formats import Idset, ResourceSet, parse_duration
from flux_trio.messages import topics
from flux_trio.process.local import Ending, open_process, run_to_end
from flux_trio.process.threads import OWN
from flux_trio.services.recorded_core import make_core
from flux_trio.services.runner import run_core


async def run(
    handle: Handle,
    inventory: ResourceSet,
    exclude: Idset | str,
    *,
    kept: Kept | None = None,
    queues: Mapping[str, str] | None = None,
    missing: Mapping[int, str] | None = None,
    check: CheckConfig | None = None,
    edition: Edition = CLASSIC,
    waits: bool = False,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `resource.*` until cancelled; `exclude` is the exclude group (RFC 28).

    `kept` and `queues` are as in `ResourceCore`, `missing` says by target what this machine lacks,
    `check` is the check command. Requests wait until what earlier runs have written is read from
    the kvs; with `waits` the service has started only then. Raises ServiceExit if it cannot be
    read, FluxError(EEXIST) if there is a resource service already.
    """
    handle.register(topics.RESOURCE)
    made = make_core(
        handle,
        ResourceCore,
        inventory,
        exclude,
        missing=missing,
        check_interval_s=None if check is None else parse_duration(check.interval),
        edition=edition,
        kept=kept,
        queues=queues,
    )
    async with trio.open_nursery() as nursery:
        runner = None
        if check is not None:
            runner = CheckRunner(check, handle.post, Durations.of(handle.now))
            nursery.start_soon(runner.serve)

        def perform(action: RunCheck | ReadFile) -> None:
            if isinstance(action, ReadFile):
                nursery.start_soon(_read_file, action, handle.post)
            else:
                assert runner is not None  # only a core with checks runs them
                runner.run_nowait(action)

        await run_core(
            handle,
            made.turns,
            perform,
            is_ready=lambda: not waits or made.core.has_read,
            task_status=task_status,
        )


async def _read_file(action: ReadFile, post: Callable[[FileRead], None]) -> None:
    try:
        text = await OWN.run(Path(action.path).read_text, "utf-8", abandon_on_cancel=True)
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        post(FileRead(action.path, None, problem or "cannot be read"))
    else:
        post(FileRead(action.path, text))


# --- the check command


KILL_TIMEOUT_S: Final = 5.0  # from SIGTERM, at the time limit, to SIGKILL
REASON_CHARACTERS_MAX: Final = 200

Post = Callable[[Checked | NotChecked], None]


class CheckRunner:
    """The processes of the check command. `post` takes each result.

    At most `max-running` processes run at a time. A sweep names each target once, and a sweep ends
    before the next one begins, so at most as many checks wait as there are targets.
    """

    def __init__(self, config: CheckConfig, post: Post, durations: Durations) -> None:
        self._config = config
        self._timeout_s = parse_duration(config.timeout)
        self._post = post
        self._durations = durations
        self._to_run, self._runs = trio.open_memory_channel[RunCheck](math.inf)

    def run_nowait(self, check: RunCheck) -> None:
        """Run the command for a target as soon as fewer than `max-running` run."""
        self._to_run.send_nowait(check)

    async def serve(self) -> None:
        """Run the checks until cancelled; then no process is left."""
        async with trio.open_nursery() as nursery:
            for _ in range(self._config.max_running):
                nursery.start_soon(self._work)

    async def _work(self) -> None:
        async for check in self._runs:
            self._post(await self._check(check))

    async def _check(self, check: RunCheck) -> Checked | NotChecked:
        environment = os.environ | {
            "FLUX_TRIO_RANK": str(check.target),
            "FLUX_TRIO_HOST": check.host,
        }
        first: dict[str, str] = {}  # first line that is not blank, by stream

        def take(stream: str, line: str) -> None:
            if line.strip():
                first.setdefault(stream, line.strip())

        try:
            async with open_process(self._config.command, environment, take) as process:
                never = trio.Event()
                ending = await run_to_end(
                    process, self._timeout_s, KILL_TIMEOUT_S, never, self._durations
                )
        except OSError as error:
            return NotChecked(check.target, f"{self._config.command[0]}: {error.strerror}")
        if not ending.failed:
            return Checked(check.target, None)
        said = first.get("stdout") or first.get("stderr") or _how(ending)
        problem = f"check timed out after {self._config.timeout}" if ending.timed_out else said
        return Checked(check.target, problem[:REASON_CHARACTERS_MAX])


def _how(ending: Ending) -> str:
    signum = ending.status & 0x7F
    if signum:
        return f"check was killed by signal {signum}"
    return f"check exited with code {ending.status >> 8}"
