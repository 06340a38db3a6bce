"""A module of flux-core: a file that flux-core's own loader runs, unmodified, at this broker.

The loader is a process with one end of a socket pair (RFC 5), on which it speaks Flux's own wire.
The other end is here. What the module sends goes out in the name of the module's handle, and what
comes for the handle goes to the process, so that the broker, the module list and the trace see an
ordinary module. Each line that the process prints is in the log.

A module is ended by a request. It is killed if it does not end in time, if it breaks the wire, or
if it says what it may not say now; the log, and the error of `module load`, have the reason.
"""

from __future__ import annotations

import os
import socket
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
import trio

from flux_trio.broker.connections import on_flux_wire
from flux_trio.broker.door_topics import DoorTopics
from flux_trio.broker.handle import LocalHandle
from flux_trio.broker.process import (
    GRACE_S,
    SLOW_S,
    ProcessEnded,
    end_process,
    exit_text,
    send_to_process,
)
from flux_trio.broker.router import Router
from flux_trio.broker.supervisor import ModuleSpec
from flux_trio.editions.rfc05 import (
    EXITED,
    FINALIZING,
    MODULE_URI,
    RUNNING,
    STATUS,
    WELCOME,
    StatusReport,
    Welcome,
    loader_command,
    name_of_module,
    shutdown_of,
)
from flux_trio.formats import FormatError
from flux_trio.messages import (
    ROLE_OWNER,
    Control,
    Errno,
    FluxError,
    Level,
    Message,
    Request,
    Response,
    errno_text,
    expect_payload,
    respond,
    respond_error,
)
from flux_trio.messages.types import NORESPONSE
from flux_trio.process.patience import telling_if_slow
from flux_trio.transports import (
    ConnectionClosed,
    ConnectionOverflow,
    EndOfConnection,
    NativeConnection,
    TransportError,
    open_native,
)
from flux_trio.transports.native import WELCOME as LET_IN

END_S_MAX: Final = 10.0
"""From the request to end until the module is killed."""
CLOSED_S_MAX: Final = 5.0
"""From the end of the connection until the process is killed, or the other way round."""
LINE_BYTES_MAX: Final = 4096
"""The part of a printed line that the log has at once."""


class ModuleFiles:
    """Makes a module of a file.

    `attributes` are those of the broker that never change, and `configuration` returns what was
    configured. A loader gets `environment`.
    """

    def __init__(
        self,
        router: Router,
        attributes: Mapping[str, str],
        configuration: Callable[[], dict[str, Any]],
        environment: Mapping[str, str],
    ) -> None:
        self._router = router
        self._attributes = dict(attributes)
        self._configuration = configuration
        self._environment = dict(environment)

    def spec(self, path: str, name: str, args: list[str], loader: str) -> ModuleSpec:
        """Return how to run the module at `path`; without a `name` the file has it.

        Raises FluxError(EINVAL) for a file of another kind, if no `loader` is named.
        """
        name = name or name_of_module(path)
        try:
            command = loader_command(loader, path, "--loader=")
        except FormatError as error:
            raise FluxError(Errno.EINVAL, str(error)) from None
        if not Path(path).is_file():
            raise FluxError(Errno.ENOENT, f"{path}: there is no such file")
        if not name or "." in name:
            raise FluxError(Errno.EINVAL, f"name: expected one without a dot, got {name!r}")
        return ModuleSpec(name, partial(self._run, command, args), path=path)

    async def _run(
        self,
        command: list[str],
        args: list[str],
        handle: LocalHandle,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run `command` as the module of `handle`. Raises ProcessEnded if it fails."""
        welcome = Welcome(
            args, self._attributes, self._configuration(), handle.name, str(uuid.uuid4())
        )
        handle.register(handle.name)
        async with _started(command, self._environment) as (process, stream):
            handle.process = process
            async with open_native(stream) as connection:
                module = _ModuleProcess(handle, self._router, connection, process, task_status)
                await module.run(welcome)


class _ModuleProcess:
    """The process of a module, and the messages to and from it."""

    def __init__(
        self,
        handle: LocalHandle,
        router: Router,
        connection: NativeConnection,
        process: trio.Process,
        task_status: trio.TaskStatus[None],
    ) -> None:
        self._handle = handle
        self._connection = connection
        self._process = process
        self._task_status = task_status
        self._trace = router.trace
        self._door = DoorTopics(router, handle.peer).methods
        self._streams: set[int] = set()  # matchtags of its open calls of streams
        self._status = 0  # what it said last
        self._errnum = 0  # and with EXITED
        self._running = trio.Event()  # it serves, or has ended before
        self._muted = trio.CancelScope()  # around what sends to it, until it finalizes
        self._read = trio.Event()  # nothing more comes
        self._printed = ""  # the last line
        self._lost = ""  # how its connection has ended, if that was no regular end
        self._end = ""  # why it is ended

    async def run(self, welcome: Welcome) -> None:
        """Forward messages until the process has ended. Raises ProcessEnded if it failed."""
        self._handle.ask_to_end = self._ask_to_end
        self._handle.peer.drop = self._kill
        self._send(Request(WELCOME, msgspec.to_builtins(welcome), rolemask=ROLE_OWNER))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._log_lines)
            nursery.start_soon(self._forward_to_process)
            nursery.start_soon(self._forward_from_process)
            nursery.start_soon(self._tell_if_slow)
            await self._process.wait()
            with trio.move_on_after(CLOSED_S_MAX):
                await self._read.wait()
            self._running.set()
            nursery.cancel_scope.cancel()
        self._explain_end()

    def _explain_end(self) -> None:
        """Raise ProcessEnded unless the module has ended in order."""
        if self._end:
            self._fail(self._end)
        if self._process.returncode:
            self._fail(f"{exit_text(self._process.returncode)}{self._lost}")
        if self._status != EXITED:
            self._fail(f"its process exited with 0 and never said EXITED ({STATUS}){self._lost}")
        if self._errnum:
            self._fail(f"it ended with {errno_text(self._errnum)}")

    def _fail(self, text: str) -> NoReturn:
        said = f"; the last line that it printed: {self._printed}" if self._printed else ""
        raise ProcessEnded(f"{text}{said}", self._errnum)

    async def _tell_if_slow(self) -> None:
        tell = partial(self._handle.log, Level.WARNING, f"still starting after {SLOW_S:g} s")
        async with telling_if_slow(SLOW_S, tell):
            await self._running.wait()

    async def _log_lines(self) -> None:
        """Put what the process prints into the log."""
        assert self._process.stdout is not None
        rest = b""
        async for data in self._process.stdout:
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LINE_BYTES_MAX:
                lines, rest = [*lines, rest], b""
            for line in lines:
                text = line.decode(errors="replace").rstrip()
                if text:
                    self._printed = text[:LINE_BYTES_MAX]
                    self._handle.log(Level.ERR, self._printed)

    def _ask_to_end(self) -> float:
        """Ask the module to end; return how many seconds it has for that."""
        name = self._handle.name
        request = Request(shutdown_of(name), flags=NORESPONSE, rolemask=ROLE_OWNER)
        self._trace.received(name, "", request, self._trace.sent("broker", name, request))
        self._send(request)
        return END_S_MAX

    def _kill(self, reason: str) -> None:
        """Kill the process; the first reason is told."""
        if not self._end:
            self._end = reason
        self._process.kill()

    def _send(self, message: Message) -> None:
        """Send what the broker itself has to say."""
        try:
            self._connection.send_nowait(message)
        except ConnectionOverflow as error:
            self._kill(str(error))
        except ConnectionClosed:
            pass

    async def _forward_to_process(self) -> None:
        with self._muted:
            while True:
                for message in await self._handle.receive():
                    await self._send_on(message)

    async def _send_on(self, message: Message) -> None:
        """Send a message for the module; it waits while the module does not read."""
        if isinstance(message, Response):
            is_end_of_stream = message.ends_rpc and message.matchtag in self._streams
            if is_end_of_stream:
                self._streams.discard(message.matchtag)
            message = on_flux_wire(message, (), was_stream=is_end_of_stream)
        await send_to_process(self._handle, self._connection, message)

    async def _forward_from_process(self) -> None:
        try:
            while True:
                for message in await self._connection.receive():
                    self._take(message)
        except EndOfConnection:
            pass
        except TransportError as error:
            self._lost = f": {error}"
        finally:
            self._read.set()
        await trio.sleep(CLOSED_S_MAX)
        self._kill(f"its process goes on without its connection{self._lost}")

    def _take(self, message: Message) -> None:
        """Take what the module sends."""
        if isinstance(message, Control):
            return
        if not isinstance(message, Request):
            self._handle.send(message)
            return
        method = self._take_status if message.topic == STATUS else self._door.get(message.topic)
        if method is None:
            if message.is_streaming and message.matchtag:
                self._streams.add(message.matchtag)
            self._handle.send(message)
            return
        try:
            answer = respond(message, method(message))
        except FluxError as error:
            answer = respond_error(message, error.errnum, error.text)
        if answer is not None:
            self._send(on_flux_wire(answer, (), was_stream=False))

    def _take_status(self, request: Request) -> None:
        """Take what the module says of itself; kill it if it says what cannot be."""
        try:
            report = expect_payload(request, StatusReport)
        except FluxError as error:
            self._kill(f"RFC 5: {error}")
            return
        if report.status < self._status:
            self._kill(f"RFC 5: {STATUS} {report.status} after {self._status}")
            return
        is_first = report.status > self._status  # flux-core's own schedulers say RUNNING twice
        self._status, self._errnum = report.status, report.errnum
        if report.status == RUNNING and is_first:
            self._running.set()
            self._task_status.started()
        elif report.status == FINALIZING:
            self._muted.cancel()


@asynccontextmanager
async def _started(
    command: list[str], environment: Mapping[str, str]
) -> AsyncIterator[tuple[trio.Process, trio.SocketStream]]:
    """Start a loader; yield its process and our end of its socket. The process ends here."""
    ours, theirs = socket.socketpair()
    ours.send(LET_IN)
    async with trio.SocketStream(trio.socket.from_stdlib_socket(ours)) as stream:
        with theirs:
            try:
                process = await trio.lowlevel.open_process(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=[theirs.fileno()],
                    env={**os.environ, **environment, MODULE_URI: f"fd://{theirs.fileno()}"},
                )
            except OSError as error:
                text = f"cannot run {command[0]}, flux-core's own: {error.strerror}"
                raise ProcessEnded(text, error.errno or 0) from error
        try:
            yield process, stream
        finally:
            await end_process(process, GRACE_S)
