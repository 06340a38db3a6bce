"""The protocol between flux-core's broker and a module in a process of its own (RFC 5).

Every module answers `NAME.ping` and the like, whatever it serves; `ModuleHandle` does.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import trio

from flux_trio.attach.handle import FluxHandle, Service, answer_of_module
from flux_trio.broker import Clock, ServiceExit, taking_in
from flux_trio.editions.rfc05 import (
    EXITED,
    FINALIZING,
    RUNNING,
    STATUS,
    WELCOME,
    Welcome,
    shutdown_of,
)
from flux_trio.formats import FormatError, Words
from flux_trio.messages import (
    Errno,
    FluxError,
    Level,
    Message,
    Request,
    expect_payload,
    respond_error,
)
from flux_trio.messages.types import NORESPONSE
from flux_trio.process.groups import unwrapping
from flux_trio.services.module_process import system_clock
from flux_trio.transports import NativeConnection, TransportError, connect_native

ANSWER_S: Final = 10.0
"""So long the broker may take to answer FINALIZING."""


_FAILURES: Final = (ValueError, FluxError, ServiceExit, OSError)


def welcome_of(message: Message) -> Welcome:
    """Return what the first message says. Raises FluxError(EPROTO) if it is another."""
    if not isinstance(message, Request) or message.topic != WELCOME:
        topic = getattr(message, "topic", type(message).__name__)
        raise FluxError(Errno.EPROTO, f"expected the request {WELCOME} first, got {topic}")
    return expect_payload(message, Welcome)


class ModuleHandle(FluxHandle):
    """A handle that is a module: `welcome`, shutdown, pings and the like do not reach its inbox."""

    def __init__(self, connection: NativeConnection, clock: Clock) -> None:
        super().__init__("module", os.getuid(), connection, clock)
        self.welcome: Welcome
        self.welcomed = trio.Event()
        self.shutdown = trio.Event()

    def _take_in(self, ref: int, message: Message) -> None:
        if not self.welcomed.is_set():
            self._read_welcome(message)
        elif getattr(message, "topic", "") == shutdown_of(self.name):
            self.shutdown.set()
        elif (answer := answer_of_module(message, self.rank)) is not None:
            self.send(answer)
        else:
            super()._take_in(ref, message)

    def _read_welcome(self, message: Message) -> None:
        self.welcome = welcome_of(message)
        self.name = self.welcome.name
        self.rank = self.welcome.attrs.get("rank", self.rank)
        self.welcomed.set()


@asynccontextmanager
async def open_module(uri: str) -> AsyncIterator[ModuleHandle]:
    """Yield the handle of the module that this process is, once the broker has welcomed it.

    Raises ConnectionRefused; EndOfConnection or ConnectionLost if the broker leaves; FluxError if
    it refuses a service name, or its first message is another.
    """
    with unwrapping(TransportError, FluxError):
        async with (
            connect_native(uri, retries=0) as connection,
            taking_in(ModuleHandle(connection, system_clock())) as handle,
        ):
            await handle.welcomed.wait()
            yield handle


async def run_module(handle: ModuleHandle, service: Service) -> int:
    """Run a service as the module until the broker ends it; return the errno of its failure, or 0.

    The service gets the handle and the arguments of the module, and the module counts as loaded
    once it has started. What it raises ends the module; the text is in the log of the broker and on
    standard error. The broker gets an errno only of what kept the module from loading: it ends the
    whole instance when a module ends with one later.
    """
    errnum, is_loaded = 0, False
    try:
        with unwrapping(*_FAILURES):
            async with trio.open_nursery() as nursery:
                await nursery.start(service, handle, *handle.welcome.args)
                await handle.wait_settled()
                _tell(handle, RUNNING)
                is_loaded = True
                await handle.shutdown.wait()
                nursery.cancel_scope.cancel()
    except _FAILURES as error:
        errnum = 0 if is_loaded else errno_of(error)
        explain(handle, str(error))
    await end_module(handle, errnum)
    return errnum


def errno_of(error: Exception) -> int:
    """Return the errno of an error that ends a module."""
    found = error.errnum if isinstance(error, FluxError) else getattr(error, "errno", None)
    return found or Errno.EINVAL


def explain(handle: FluxHandle, text: str) -> None:
    """Say why the module cannot go on, where `flux module load` and `flux dmesg` show it."""
    print(f"{handle.name}: {text}", file=sys.stderr)
    handle.log(Level.ERR, text)


async def end_module(handle: FluxHandle, errnum: int) -> None:
    """Tell the broker that the module ends, with an errno or 0; answer what is in its inbox."""
    with trio.move_on_after(ANSWER_S):
        await handle.call(STATUS, {"status": FINALIZING})
    while handle.waiting():
        for message in await handle.receive():
            if isinstance(message, Request):
                handle.answer(respond_error(message, Errno.ENOSYS))
    _tell(handle, EXITED, errnum=errnum)


def _tell(handle: FluxHandle, status: int, **more: int) -> None:
    handle.send(Request(STATUS, {"status": status, **more}, flags=NORESPONSE))


# --- the loader: a file with an async `mod_main(flux, *args, task_status)`, which registers its
# services, says `task_status.started()`, and serves until it is cancelled; `flux` is a ModuleHandle


MAIN: Final = "mod_main"
EXPECTED: Final = f"a file of Python with `async def {MAIN}(flux, *args, task_status)`"
MODULES: Final = Path(__file__).with_name("modules")
"""Where our own modules are."""


async def load_module(uri: str, path: str) -> int:
    """Run the module at `path` at the broker at `uri` until that ends it; return an exit code.

    Raises the errors of `open_module`.
    """
    async with open_module(uri) as handle:
        try:
            main = main_in(Path(path))
        except (FormatError, OSError) as error:
            explain(handle, str(error))
            await end_module(handle, errno_of(error))
            return 1
        return 1 if await run_module(handle, main) else 0


def main_in(path: Path) -> Service:
    """Return the function that a file has. Raises FormatError if it has none, OSError."""
    names: dict[str, object] = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), names)
    except (SyntaxError, ValueError, ImportError) as error:
        raise FormatError(EXPECTED, Words(str(error)), str(path)) from None
    main = names.get(MAIN)
    if not inspect.iscoroutinefunction(main):
        raise FormatError(EXPECTED, Words(f"no async function {MAIN}"), str(path))
    return cast(Service, main)
