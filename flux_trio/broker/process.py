"""A module in a process of its own: started, connected, and ended with the module.

The process connects as any peer does, with a token of its own. From then on the module's handle is
passed through: what is for the module goes out over the connection, what comes in is sent in the
module's name. So to the broker, to the list of modules and in the trace it is the same module.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from flux_trio.transports import (
    Connection,
    ConnectionClosed,
    ConnectionOverflow,
    Credentials,
    TransportError,
)

READY: Final = "ready"  # the line with which the process says that it serves
START_S_MAX: Final = 30.0  # to say so
GRACE_S: Final = 5.0  # from SIGTERM to SIGKILL
END_S_MAX: Final = 1.0  # from the end of the connection to that of the process
FULL_S: Final = 0.01  # a pause for a process that reads too slowly; its inbox grows meanwhile
LINE_BYTES_MAX: Final = 4096


class ProcessEnded(Exception):
    """The process of a module ended, or cannot be talked to; the text says how."""


@dataclass(eq=False)
class _Expected:
    """A connection that a process is going to make."""

    connection: Connection | None = None
    come: trio.Event = field(default_factory=trio.Event)
    done: trio.Event = field(default_factory=trio.Event)  # nobody uses it any more


class Processes:
    """What processes of modules need of an instance: an address, tokens, a way in.

    `address` is where the instance listens, "" when it does not. `environment` is theirs, with
    address and token under the two `names`; `grace_s` (seconds) lies between SIGTERM and SIGKILL.
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
        """Run `command` as the module of `handle` until cancelled; then it is ended.

        Raises ProcessEnded when it ends by itself, or cannot connect.
        """
        if not self._address():
            raise ProcessEnded("no process can connect: this instance does not listen")
        with self._expecting(handle.name) as (token, expected):
            uri_name, token_name = self._names
            environment = {
                **self._environment,
                uri_name: self._address(),
                token_name: token,
            }
            process = await trio.lowlevel.open_process(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment
            )
            handle.process = process
            try:
                await _serve(handle, process, expected, task_status)
            finally:
                await _end(process, self._grace_s)

    async def take(self, connection: Connection, credentials: Credentials) -> bool:
        """Whether the connection was a process's; then it is over."""
        expected = self._expected.pop(credentials, None)
        if expected is None:
            return False
        expected.connection = connection
        expected.come.set()
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
    """Pass messages until the process ends. Raises ProcessEnded."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_connect, handle, expected)
        await _wait_ready(process)
        task_status.started()
        raise ProcessEnded(await _how_it_ended(process))


async def _wait_ready(process: trio.Process) -> None:
    """Until the process serves. Raises ProcessEnded when it says something else, or nothing."""
    with trio.move_on_after(START_S_MAX):
        line = await _first_line(process)
        if line == READY:
            return
        raise ProcessEnded(line or await _how_it_ended(process))
    raise ProcessEnded(f"its process does not serve after {START_S_MAX:g} s")


async def _connect(handle: LocalHandle, expected: _Expected) -> None:
    """Pass messages both ways once the connection is there. Raises ProcessEnded at its end."""
    await expected.come.wait()
    connection = expected.connection
    assert connection is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_pass_out, handle, connection)
        reason = await _pass_in(handle, connection)
        nursery.cancel_scope.cancel()
    await trio.sleep(END_S_MAX)  # when it has ended, how is told instead
    raise ProcessEnded(f"its process let go of the connection: {reason}")


async def _pass_in(handle: LocalHandle, connection: Connection) -> str:
    """Send what comes in the module's name; why it ended."""
    try:
        while True:
            for message in await connection.receive():
                if not isinstance(message, Control):
                    handle.send(message)
    except TransportError as error:
        return str(error)


async def _pass_out(handle: LocalHandle, connection: Connection) -> None:
    while True:
        for message in await handle.receive():
            if not await _put(handle, connection, message):
                return


async def _put(handle: LocalHandle, connection: Connection, message: Message) -> bool:
    """Whether the connection is still there; `message` is on its way, or was refused."""
    while True:
        try:
            connection.send_nowait(message)
        except ConnectionOverflow:
            await trio.sleep(FULL_S)
            continue
        except ConnectionClosed:
            return False
        except LocalProtocolError as error:  # most likely for its size
            handle.log(Level.ERR, str(error))
            await _refuse(handle, connection, message, str(error))
        return True


async def _refuse(handle: LocalHandle, connection: Connection, message: Message, text: str) -> None:
    """In place of what no frame can carry: an error, to whoever waits."""
    if isinstance(message, Request):
        answer = respond_error(message, Errno.EMSGSIZE, text)
        if answer is not None:
            handle.send(answer)
    elif isinstance(message, Response) and not message.errnum:
        failed = Response(message.topic, text, int(Errno.EMSGSIZE), message.matchtag)
        await _put(handle, connection, failed)


async def _first_line(process: trio.Process) -> str:
    """What the process says first; "" when it ends without a word."""
    assert process.stdout is not None
    said = b""
    while b"\n" not in said and len(said) < LINE_BYTES_MAX:
        data = await process.stdout.receive_some()
        if not data:
            break
        said += data
    return said.partition(b"\n")[0].decode(errors="replace")


async def _how_it_ended(process: trio.Process) -> str:
    status = await process.wait()
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    return f"its process exited with {status}"


async def _end(process: trio.Process, grace_s: float) -> None:
    """SIGTERM, grace, SIGKILL; the process is gone when this returns."""
    with trio.CancelScope(shield=True):
        if process.returncode is None:
            process.terminate()
        with trio.move_on_after(grace_s):
            await process.wait()
        if process.returncode is None:
            process.kill()
        await process.wait()
        assert process.stdout is not None
        await process.stdout.aclose()
