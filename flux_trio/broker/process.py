"""A module in its own process: starts it, connects it, and ends it with the module.

The process connects like any peer, with its own token. The module's handle then forwards messages:
those for the module go out over the connection, and those from the connection are sent in the
module's name. So the broker, the module list and the trace see an ordinary module.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import trio

from flux_trio.broker.handle import LocalHandle
from flux_trio.broker.tokens import Tokens
from flux_trio.messages import (
    Control,
    Errno,
    Level,
    LocalProtocolError,
    Message,
    Request,
    Response,
    respond_error,
)
from flux_trio.process.local import reap
from flux_trio.process.patience import telling_if_slow
from flux_trio.transports import (
    Connection,
    ConnectionClosed,
    ConnectionOverflow,
    Credentials,
    TransportError,
)

READY: Final = "ready"  # the process prints this line when it serves
SLOW_S: Final = 10.0  # after this time the log says that READY has not come yet
GRACE_S: Final = 5.0  # from SIGTERM to SIGKILL
END_S_MAX: Final = 1.0  # from the end of the connection to the end of the process
LINE_BYTES_MAX: Final = 4096


class ProcessEnded(Exception):
    """The process of a module ended or lost its connection; the text says how.

    `errnum` is what the module has ended with, 0 for anything else.
    """

    def __init__(self, text: str, errnum: int = 0) -> None:
        super().__init__(text)
        self.errnum = errnum


@dataclass(eq=False)
class _Expected:
    """A connection that a module's process will make."""

    connection: Connection | None = None
    connected: trio.Event = field(default_factory=trio.Event)
    done: trio.Event = field(default_factory=trio.Event)  # set when the connection is unused


class Processes:
    """Starts module processes: gives them an address and a token, and accepts their connections.

    `address` returns where the instance listens, "" if it does not. The processes get `environment`
    plus address and token under the two `names`. `grace_s` is in seconds, from SIGTERM to SIGKILL.
    """

    def __init__(
        self,
        tokens: Tokens,
        userid: int,
        address: Callable[[], str],
        names: tuple[str, str],
        environment: Mapping[str, str],
        grace_s: float = GRACE_S,
    ) -> None:
        self._tokens = tokens
        self._userid = userid
        self._address = address
        self._names = names
        self._environment = environment
        self._grace_s = grace_s
        self._expected: dict[Credentials, _Expected] = {}

    async def run(
        self,
        command: list[str],
        handle: LocalHandle,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run `command` as the module of `handle` until cancelled, then end the process.

        Raises ProcessEnded if the process ends by itself or cannot connect.
        """
        if not self._address():
            raise ProcessEnded("no process can connect: this instance does not listen")
        with self._expecting(handle.name) as (token, expected):
            uri_name, token_name = self._names
            environment = {**self._environment, uri_name: self._address(), token_name: token}
            process = await trio.lowlevel.open_process(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment
            )
            handle.process = process
            try:
                await _serve(handle, process, expected, task_status)
            finally:
                await end_process(process, self._grace_s)

    async def serve(self, connection: Connection, credentials: Credentials) -> bool:
        """Serve `connection` to its end if a module's process made it; else return False."""
        expected = self._expected.pop(credentials, None)
        if expected is None:
            return False
        expected.connection = connection
        expected.connected.set()
        await expected.done.wait()
        return True

    @contextmanager
    def _expecting(self, name: str) -> Iterator[tuple[str, _Expected]]:
        expected = _Expected()
        with self._tokens.lend(self._userid, f"module {name}") as (token, credentials):
            self._expected[credentials] = expected
            try:
                yield token, expected
            finally:
                self._expected.pop(credentials, None)
                expected.done.set()


async def _serve(
    handle: LocalHandle,
    process: trio.Process,
    expected: _Expected,
    task_status: trio.TaskStatus[None],
) -> None:
    """Forward messages until the process ends; raises ProcessEnded."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_connect, handle, expected)
        tell = partial(handle.log, Level.WARNING, f"still starting after {SLOW_S:g} s")
        async with telling_if_slow(SLOW_S, tell):
            await _wait_ready(process)
        task_status.started()
        raise ProcessEnded(exit_text(await process.wait()))


async def _wait_ready(process: trio.Process) -> None:
    """Wait for READY, however long it takes; ProcessEnded for another line or at the end."""
    line = await _first_line(process)
    if line != READY:
        raise ProcessEnded(line or exit_text(await process.wait()))


async def _connect(handle: LocalHandle, expected: _Expected) -> None:
    """Forward messages both ways after the process has connected; ProcessEnded at the end."""
    await expected.connected.wait()
    connection = expected.connection
    assert connection is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_forward_to_process, handle, connection)
        reason = await _forward_from_process(handle, connection)
        nursery.cancel_scope.cancel()
    await trio.sleep(END_S_MAX)  # if the process ends meanwhile, its status is the better reason
    raise ProcessEnded(f"its process closed the connection: {reason}")


async def _forward_from_process(handle: LocalHandle, connection: Connection) -> str:
    """Send received messages in the module's name; return why the connection ended."""
    try:
        while True:
            for message in await connection.receive():
                if not isinstance(message, Control):
                    handle.send(message)
    except TransportError as error:
        return str(error)


async def _forward_to_process(handle: LocalHandle, connection: Connection) -> None:
    while True:
        for message in await handle.receive():
            if not await send_to_process(handle, connection, message):
                return


async def send_to_process(handle: LocalHandle, connection: Connection, message: Message) -> bool:
    """Queue `message` for the process, or refuse it; return False if the connection is gone."""
    while True:
        try:
            connection.send_nowait(message)
        except ConnectionOverflow:
            await connection.wait_room()  # meanwhile the inbox of the module grows
            continue
        except ConnectionClosed:
            return False
        except LocalProtocolError as error:  # usually because of its size
            handle.log(Level.ERR, str(error))
            await _refuse(handle, connection, message, str(error))
        return True


async def _refuse(handle: LocalHandle, connection: Connection, message: Message, text: str) -> None:
    """Send an error in place of a message that fits into no frame."""
    if isinstance(message, Request):
        handle.answer(respond_error(message, Errno.EMSGSIZE, text))
    elif isinstance(message, Response) and not message.errnum:
        failed = Response(
            message.topic, text, int(Errno.EMSGSIZE), message.matchtag, rolemask=message.rolemask
        )
        await send_to_process(handle, connection, failed)


async def _first_line(process: trio.Process) -> str:
    """Return the first line that the process prints; "" if it ends before that."""
    assert process.stdout is not None
    output = b""
    while b"\n" not in output and len(output) < LINE_BYTES_MAX:
        data = await process.stdout.receive_some()
        if not data:
            break
        output += data
    return output.partition(b"\n")[0].decode(errors="replace")


def exit_text(status: int) -> str:
    """Return how a process has ended, by its status: negative for a signal."""
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    return f"its process exited with {status}"


async def end_process(process: trio.Process, grace_s: float) -> None:
    """Send SIGTERM, wait, send SIGKILL."""
    if process.returncode is None:
        process.terminate()
    with trio.move_on_after(grace_s, shield=True):
        await process.wait()
    if process.returncode is None:
        process.kill()
    await reap(process)
    assert process.stdout is not None
    await process.stdout.aclose()
