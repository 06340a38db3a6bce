"""Threads in which the instance itself waits for disks and name services.

Plugins may use `trio.to_thread.run_sync`, whose threads are limited in number for the whole
process. If each of them hangs, for example with a directory service, the instance must still get
its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import trio

THREADS_MAX: Final = 40
"""Threads of one kind; who needs one more waits for the end of another."""

T = TypeVar("T")


class Threads:
    """Threads for one kind of work, in each run of Trio."""

    def __init__(self, name: str) -> None:
        self._limiter = trio.lowlevel.RunVar[trio.CapacityLimiter](name)

    async def run(
        self, function: Callable[..., T], *args: object, abandon_on_cancel: bool = False
    ) -> T:
        """Call a function in a thread, as `trio.to_thread.run_sync` does."""
        try:
            limiter = self._limiter.get()
        except LookupError:
            limiter = trio.CapacityLimiter(THREADS_MAX)
            self._limiter.set(limiter)
        return await trio.to_thread.run_sync(
            function, *args, abandon_on_cancel=abandon_on_cancel, limiter=limiter
        )


OWN: Final = Threads("own threads")
USERS: Final = Threads("threads that look up users")
