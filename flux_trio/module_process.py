"""A module as a process of its own: `python -m flux_trio.module_process NAME`.

Started by `flux-trio module load --exec NAME`. Address and token of the instance come in the
environment, as for any client, and with them the configuration. The first line on standard output
says that the module serves, or why it does not; when the connection ends, so does the process.
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
from flux_trio.client import STATEDIR_VARIABLE, TOKEN_VARIABLE, URI_VARIABLE
from flux_trio.clock import Clock
from flux_trio.config import Config
from flux_trio.messages import FluxError
from flux_trio.services import exec as exec_service
from flux_trio.services import sched
from flux_trio.transports import TransportError, connect_websocket

CONFIG_VARIABLE: Final = "FLUX_TRIO_MODULE_CONFIG"
PROCESS_MODULES: Final = ("sched", "sched-fifo", "job-exec")  # those that can run here
EXPECTED: Final = (TransportError, FluxError, ServiceExit, OSError)  # the text says all


def execution(config: Config, statedir: Path | None) -> ModuleMain:
    """The main of the execution service; it can run processes if there is a state directory."""
    return partial(
        exec_service.run,
        directory=None if statedir is None else statedir / "shell",
        config=config.exec,
        # so that commands in a job reach the instance
        environment={} if statedir is None else {STATEDIR_VARIABLE: str(statedir)},
    )


def main_of(name: str, config: Config, statedir: Path | None) -> ModuleMain:
    """How to run the module `name`, one of PROCESS_MODULES, here or elsewhere."""
    if name == "job-exec":
        return execution(config, statedir)
    return partial(sched.run, config=config, policy="fifo" if name == "sched-fifo" else None)


def system_clock() -> Clock:
    """The clock of a machine that people set and put to sleep."""
    return Clock(time.time, partial(time.clock_gettime, time.CLOCK_BOOTTIME))


def module_command(name: str) -> list[str]:
    return [sys.executable, "-m", "flux_trio.module_process", name]


def module_environment(config: Config, statedir: Path | None) -> dict[str, str]:
    """What it needs in its environment, besides address and token; and this process's own."""
    tables = Config(
        config.edition,
        sched=config.sched,
        exec=config.exec,
        policy=config.policy,
        queues=config.queues,
    )
    more = {} if statedir is None else {STATEDIR_VARIABLE: str(statedir)}
    return {**os.environ, **more, CONFIG_VARIABLE: msgspec.json.encode(tables).decode()}


async def _serve(main: ModuleMain, handle: RemoteHandle) -> None:
    """Run `main` until SIGTERM; say so once the broker knows its names."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            await nursery.start(main, handle)
            await handle.wait_settled()
            _say(READY)
            async for _ in signals:
                nursery.cancel_scope.cancel()


async def _run(name: str) -> None:
    uri, token, config = (
        os.environ.pop(each) for each in (URI_VARIABLE, TOKEN_VARIABLE, CONFIG_VARIABLE)
    )  # gone from what is started here: a shell host outlives the token
    statedir = os.environ.get(STATEDIR_VARIABLE)
    main = main_of(
        name, msgspec.json.decode(config, type=Config), None if statedir is None else Path(statedir)
    )
    async with (
        connect_websocket(uri, token) as connection,
        open_remote(name, os.getuid(), connection, system_clock()) as handle,
    ):
        await _serve(main, handle)


def _say(line: str) -> None:
    """The one line; after it nobody reads."""
    with suppress(BrokenPipeError):  # the instance is gone
        os.write(1, line.encode() + b"\n")
    os.dup2(2, 1)


def main(name: str) -> int:
    """Run the module; the exit code."""
    try:
        trio.run(_run, name)
    except (*EXPECTED, BaseExceptionGroup) as error:
        reason = _reason(error)
        if reason is None:
            raise
        _say(reason)
        return 1
    return 0


def _reason(error: BaseException) -> str | None:
    """What expected errors say; None when there is another among them."""
    if isinstance(error, BaseExceptionGroup):
        reasons = [_reason(each) for each in error.exceptions]
        return None if None in reasons else "; ".join(map(str, reasons))
    return str(error) if isinstance(error, EXPECTED) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
