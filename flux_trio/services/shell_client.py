"""The exec service's connection to its shell host, which is made again whenever it is lost.

If a host answers, it is used; otherwise one is started. A host that hangs, or is about to end, may
still accept a connection. So the client first sends `List`, and uses the connection from the answer
on. Requests before that are dropped: at `ShellConnected` the core sends all of them again.

No time limit ends the wait for a host. On a busy machine, or with a slow file system, a start takes
long, and a start from the beginning would take as long again. After SLOW_S seconds the exec service
learns what the client waits for.
"""

from __future__ import annotations

import socket
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import trio

from flux_trio.cores.exec.vocabulary import ShellConnected, ShellFailed, ShellInput, ShellLost
from flux_trio.process.console import own_command
from flux_trio.process.patience import telling_if_slow
from flux_trio.process.threads import OWN
from flux_trio.shell.begun import begun_host, end, tell
from flux_trio.shell.protocol import (
    ALREADY_RUNNING,
    LOG_NAME,
    NOTICES,
    List,
    ShellNotice,
    ShellProtocolError,
    ShellRequest,
    Shutdown,
    frame,
)
from flux_trio.shell.stream import ShellStream, is_same_user, socket_address

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RETRY_S: Final = 0.05  # while another host starts or ends
SLOW_S: Final = 10.0  # after this time the exec service learns that no host answers yet
FAILED_RETRY_S: Final = 1.0


class ShellUnavailableError(Exception):
    """No shell host answers, and it cannot be started."""


class ShellClient:
    """The client of the shell host in `directory`; `post` takes its messages."""

    def __init__(self, directory: Path, post: Callable[[ShellInput], None]) -> None:
        self._directory = directory
        self._post = post
        self._stream: ShellStream[ShellNotice] | None = None
        self._is_launching = False
        self._begun = begun_host.get()

    def send(self, request: ShellRequest) -> None:
        """Send `request` without waiting; drop it if there is no connection."""
        if self._stream is not None:
            self._stream.send(request)

    async def run(self) -> None:
        """Keep a connection until cancelled; then tell the host to end if it runs no job."""
        while True:
            try:
                stream, first = await self._open()
            except ShellUnavailableError as error:
                self._post(ShellFailed(str(error)))
                await trio.sleep(FAILED_RETRY_S)
                continue
            self._stream = stream
            for input_ in (ShellConnected(), *first):
                self._post(input_)
            try:
                reason = await self._listen(stream)
            finally:
                self._stream = None
            self._post(ShellLost(reason))

    async def _listen(self, stream: ShellStream[ShellNotice]) -> str:
        """Post the messages until the connection ends; return why it has ended."""
        reason = "the shell host closed the connection"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.pump)
                try:
                    while notices := await stream.receive():
                        for notice in notices:
                            self._post(notice)
                except ShellProtocolError as error:
                    reason = str(error)
                nursery.cancel_scope.cancel()
        finally:
            stream.send_last(Shutdown())
            stream.close()
        return reason

    async def _open(self) -> tuple[ShellStream[ShellNotice], list[ShellNotice]]:
        """Return a host that answers, and its answer; start it first if necessary.

        Raises ShellUnavailableError.
        """
        with ExitStack() as undo:
            async with telling_if_slow(SLOW_S, self._tell_slow):
                stream, first = await self._find()
                undo.callback(stream.close)
            undo.pop_all()  # no cancel came as the block was left
        return stream, first

    def _tell_slow(self) -> None:
        if self._is_launching:
            text = f"is still starting after {SLOW_S:g} s"
        else:
            text = f"does not answer within {SLOW_S:g} s (see {LOG_NAME} there)"
        self._post(ShellFailed(f"the shell host in {self._directory} {text}"))

    async def _find(self) -> tuple[ShellStream[ShellNotice], list[ShellNotice]]:
        while True:
            connection = await self._connect()
            if connection is not None and self._begun is not None:
                self._begun.drop()  # there is a host
            if connection is None:
                if await self._launch() == ALREADY_RUNNING:
                    await trio.sleep(RETRY_S)
                continue
            stream = ShellStream(connection, NOTICES)
            first = await _first_answer(connection, stream)
            if first:
                return stream, first
            await trio.sleep(RETRY_S)

    async def _connect(self) -> trio.SocketStream | None:
        """Return a connection; None if no host listens."""
        connection = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with ExitStack() as undo:
            undo.callback(connection.close)
            try:
                with socket_address(self._directory) as address:
                    await connection.connect(address)
            except OSError:
                return None
            undo.pop_all()
        stream = trio.SocketStream(connection)
        if not is_same_user(stream):
            await stream.aclose()
            raise ShellUnavailableError(f"the socket in {self._directory} is another user's")
        return stream

    async def _launch(self) -> int:
        """Start a host, unless one runs; return the exit status. Raises ShellUnavailableError."""
        self._is_launching = True
        try:
            status, errors = await self._launched()
        except OSError as error:
            raise ShellUnavailableError(f"cannot start the shell host: {error}") from None
        finally:
            self._is_launching = False
        if status not in (0, ALREADY_RUNNING):
            last = errors.strip().rpartition("\n")[2]
            if status < 0:
                last = f"it was killed by signal {-status}"
            raise ShellUnavailableError(f"cannot start the shell host: {last}")
        return status

    async def _launched(self) -> tuple[int, str]:
        """Let a host start; return its exit status and errors. A cancel kills it. OSError."""
        begun = None if self._begun is None else self._begun.take()
        if begun is None:
            command = own_command("flux_trio.shell", str(self._directory))
            result = await trio.run_process(
                command,
                stdin=subprocess.DEVNULL,
                capture_stderr=True,
                check=False,
                deliver_cancel=_kill,
            )
            return result.returncode, result.stderr.decode(errors="replace")
        try:
            errors = await OWN.run(tell, begun, abandon_on_cancel=True)
        except trio.Cancelled:
            end(begun)
            raise
        return begun.returncode, errors


async def _kill(process: trio.Process) -> None:
    """End a start that is cancelled; Trio's own way would give it 5 s after SIGTERM."""
    process.kill()


async def _first_answer(
    connection: trio.SocketStream, stream: ShellStream[ShellNotice]
) -> list[ShellNotice]:
    """Return the answer to `List`; empty if the host closes the connection."""
    answer: list[ShellNotice] = []
    try:
        await connection.send_all(frame(List()))
        answer = await stream.receive()
    except trio.BrokenResourceError:
        pass
    except ShellProtocolError as error:
        raise ShellUnavailableError(f"the shell host answers wrongly: {error}") from None
    finally:
        if not answer:
            stream.close()
    return answer
