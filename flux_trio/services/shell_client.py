"""The exec service's connection to its shell host: made, and made again, for as long as it runs.

A host that answers is used; where there is none, one is started. A connection alone is no answer: a
host that hangs, or ends as it begins, has one too. So each connection begins with `List`, and is
used from the response on. What is sent before that is dropped: `ShellConnected` tells the core to
say all that matters again.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import trio

from flux_trio.cores.exec.vocabulary import ShellConnected, ShellFailed, ShellInput, ShellLost
from flux_trio.shell.host import ALREADY_RUNNING
from flux_trio.shell.protocol import (
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

RETRY_S: Final = 0.05  # while another host is coming up or going down
START_S_MAX: Final = 10.0  # then the exec service is told that there is no host
FAILED_RETRY_S: Final = 1.0


class ShellUnavailableError(Exception):
    """No shell host answers and none can be started."""


class ShellClient:
    """What the exec service holds of the shell host in `directory`; `post` takes its words."""

    def __init__(self, directory: Path, post: Callable[[ShellInput], None]) -> None:
        self._directory = directory
        self._post = post
        self._stream: ShellStream[ShellNotice] | None = None

    def send(self, request: ShellRequest) -> None:
        """Send, never waiting; dropped without a connection."""
        if self._stream is not None:
            self._stream.send(request)

    async def run(self) -> None:
        """Keep a connection until cancelled; then tell the host to end, if nothing runs."""
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
        """Post what comes until the connection ends; returns why it did."""
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
        """A host that answers, started if need be, and its answer. Raises ShellUnavailableError."""
        with trio.move_on_after(START_S_MAX):
            while True:
                connection = await self._connect()
                if connection is None:
                    if await self._launch() == ALREADY_RUNNING:
                        await trio.sleep(RETRY_S)
                    continue
                stream = ShellStream(connection, NOTICES)
                first = await _first_answer(connection, stream)
                if first:
                    return stream, first
                await trio.sleep(RETRY_S)
        raise ShellUnavailableError(
            f"the shell host in {self._directory} does not answer within {START_S_MAX:g} s "
            f"(see {LOG_NAME} there)"
        )

    async def _connect(self) -> trio.SocketStream | None:
        """A connection, or None when nobody listens, for whatever reason: starting one tells."""
        connection = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with socket_address(self._directory) as address:
                await connection.connect(address)
        except OSError:
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise
        stream = trio.SocketStream(connection)
        if not is_same_user(stream):
            await stream.aclose()
            raise ShellUnavailableError(f"the socket in {self._directory} is another user's")
        return stream

    async def _launch(self) -> int:
        """Start a host, unless one is running; its exit status. Raises ShellUnavailableError."""
        command = [sys.executable, "-m", "flux_trio.shell.host", str(self._directory)]
        try:
            result = await trio.run_process(
                command, stdin=subprocess.DEVNULL, capture_stderr=True, check=False
            )
        except OSError as error:
            raise ShellUnavailableError(f"cannot start the shell host: {error}") from None
        if result.returncode not in (0, ALREADY_RUNNING):
            last = result.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            if result.returncode < 0:
                last = f"it was killed by signal {-result.returncode}"
            raise ShellUnavailableError(f"cannot start the shell host: {last}")
        return result.returncode


async def _first_answer(
    connection: trio.SocketStream, stream: ShellStream[ShellNotice]
) -> list[ShellNotice]:
    """What a host says to `List`; nothing if it closes the connection, which is closed then."""
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
