"""Runs a module in its own process: `python -m flux_trio.services.module_process NAME`.

`flux-trio module load --exec NAME` starts it. The environment has the address and token of the
instance, as for any client, and the configuration. The first line on standard output says that the
module serves, or why it does not. The process ends with its connection.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from flux_trio.broker import READY, ModuleMain, RemoteHandle, ServiceExit, open_remote
from flux_trio.client import (
    FLUX_URI_VARIABLE,
    NATIVE_FILE,
    STATEDIR_VARIABLE,
    TOKEN_VARIABLE,
    URI_VARIABLE,
)
from flux_trio.clock import Clock
from flux_trio.config import Config
from flux_trio.cores.exec.guest import GuestSettings
from flux_trio.cores.exec.tasks import PATH_VARIABLE, TMPDIR_VARIABLE, TOP
from flux_trio.messages import FluxError
from flux_trio.process.console import id_form, own_command
from flux_trio.process.groups import leaves
from flux_trio.services import exec as exec_service
from flux_trio.services import sched
from flux_trio.shell.protocol import SHELL_DIRECTORY, TMP_NAME
from flux_trio.transports import TransportError, connect_websocket, native_uri

CONFIG_VARIABLE: Final = "FLUX_TRIO_MODULE_CONFIG"
PROCESS_MODULES: Final = ("sched", "sched-fifo", "job-exec")  # modules that can run here
EXPECTED: Final = (TransportError, FluxError, ServiceExit, OSError)  # their text is sufficient


def execution(config: Config, statedir: Path | None, jobid_path: str = TOP) -> ModuleMain:
    """Return the main of the execution service; with a state directory it can run processes.

    `jobid_path` has the jobs that the instance is in, the outermost first: "/" for none.
    """
    return partial(
        exec_service.run,
        directory=None if statedir is None else statedir / SHELL_DIRECTORY,
        config=config.exec,
        edition=config.edition_value,
        guests=GuestSettings() if config.has_native_door else None,
        id_form=id_form(),
        environment=_of_tasks(config, statedir, jobid_path),
    )


def _of_tasks(config: Config, statedir: Path | None, jobid_path: str) -> dict[str, str]:
    """Return the variables by which commands in a job, Flux's own too, find the instance."""
    if statedir is None:
        return {}
    found = {STATEDIR_VARIABLE: str(statedir)}
    if config.has_native_door:
        found[FLUX_URI_VARIABLE] = native_uri(statedir / NATIVE_FILE)
        found[PATH_VARIABLE] = jobid_path
        found[TMPDIR_VARIABLE] = str(statedir / SHELL_DIRECTORY / TMP_NAME)
    return found


def main_of(name: str, config: Config, statedir: Path | None, jobid_path: str = TOP) -> ModuleMain:
    """Return the main of the module `name`, one of PROCESS_MODULES, in any process."""
    if name == "job-exec":
        return execution(config, statedir, jobid_path)
    return partial(sched.run, config=config, policy="fifo" if name == "sched-fifo" else None)


def system_clock() -> Clock:
    """Return the clock of a machine whose wall clock may be set and that may sleep."""
    return Clock(time.time, partial(time.clock_gettime, time.CLOCK_BOOTTIME))


def module_command(name: str) -> list[str]:
    return own_command("flux_trio.services.module_process", name)


def module_environment(
    config: Config, statedir: Path | None, jobid_path: str = TOP
) -> dict[str, str]:
    """Return this process's environment plus the module's variables, without address and token."""
    tables = Config(
        config.edition,
        sched=config.sched,
        exec=config.exec,
        policy=config.policy,
        queues=config.queues,
    )
    more = {} if statedir is None else {STATEDIR_VARIABLE: str(statedir)}
    more[PATH_VARIABLE] = jobid_path
    return {**os.environ, **more, CONFIG_VARIABLE: msgspec.json.encode(tables).decode()}


async def _serve(main: ModuleMain, handle: RemoteHandle) -> None:
    """Run `main` until SIGTERM; print READY when the broker has granted its names."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            await nursery.start(main, handle)
            await handle.wait_settled()
            _print_line(READY)
            async for _ in signals:
                nursery.cancel_scope.cancel()


async def _run(name: str) -> None:
    uri, token, config = (
        os.environ.pop(each) for each in (URI_VARIABLE, TOKEN_VARIABLE, CONFIG_VARIABLE)
    )  # removed from the environment of child processes: a shell host outlives the token
    statedir = os.environ.get(STATEDIR_VARIABLE)
    main = main_of(
        name,
        msgspec.json.decode(config, type=Config),
        None if statedir is None else Path(statedir),
        os.environ.get(PATH_VARIABLE, TOP),
    )
    async with (
        connect_websocket(uri, token) as connection,
        open_remote(name, os.getuid(), connection, system_clock()) as handle,
    ):
        await _serve(main, handle)


def _print_line(line: str) -> None:
    """Print the only line; after it standard output goes to standard error."""
    with suppress(BrokenPipeError):  # the instance is gone
        os.write(1, line.encode() + b"\n")
    os.dup2(2, 1)


def main(name: str) -> int:
    """Run the module; return the exit code."""
    try:
        trio.run(_run, name)
    except (*EXPECTED, BaseExceptionGroup) as raised:
        errors = leaves(raised)
        if not all(isinstance(each, EXPECTED) for each in errors):
            raise
        _print_line("; ".join(map(str, errors)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
