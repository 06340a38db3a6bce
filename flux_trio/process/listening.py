"""Taking connections, also while the process or the machine has no descriptor left for them."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from flux_trio.process.console import STDERR

SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
RETRY_S: Final = 0.1  # between two tries, while peers wait to be taken
TELL_AGAIN_S: Final = 60.0  # a shortage that goes on, or comes again soon, is told once


class _Listener(trio.abc.Listener[trio.SocketStream]):
    """Takes connections from another listener; waits while there is no descriptor for them."""

    def __init__(self, listener: trio.SocketListener, tell: Callable[[str], object]) -> None:
        self._listener = listener
        self._tell = tell
        self._tell_at = trio.current_time()

    async def accept(self) -> trio.SocketStream:
        while True:
            try:
                return await self._listener.accept()
            except OSError as error:
                if error.errno not in SHORT:
                    raise
                if trio.current_time() >= self._tell_at:
                    self._tell_at = trio.current_time() + TELL_AGAIN_S
                    self._tell(f"no connection can be taken, peers wait: {error.strerror}")
            await trio.sleep(RETRY_S)

    async def aclose(self) -> None:
        await self._listener.aclose()


async def serve_listeners(
    handler: Callable[[trio.SocketStream], Awaitable[object]],
    listeners: Sequence[trio.SocketListener],
    tell: Callable[[str], object] = STDERR.write,
    *,
    task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Do what trio.serve_listeners does; `tell` gets a line about a shortage, not a traceback."""
    patient = [_Listener(each, tell) for each in listeners]
    await trio.serve_listeners(handler, patient, task_status=task_status)
