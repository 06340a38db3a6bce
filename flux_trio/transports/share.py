"""The share of the instance's time and memory for all connections of one guest together.

One event loop serves everybody. The instance takes a guest's messages one slice at a time, over all
connections of that guest; a new connection counts as a slice. After a slice the guest rests until
the loop has been idle for twice as long as it was busy; after much work the rest is longer. So most
calls of other users find the loop idle, however fast a guest sends or connects. The owner's
connections have no share: nobody but the owner loses by the owner's load.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

GUEST_QUEUE_BYTES_MAX: Final = 64 * 2**20  # waiting for all connections of a guest to read

SLICE_MESSAGES_MIN: Final = 2
SLICE_MESSAGES_MAX: Final = 64  # of a frame at a time: decoded and routed in a millisecond
BUSY_S: Final = 0.003  # of the loop's time, for a slice and the work that follows from it
REST_FACTOR: Final = 2.0  # rest time per work time
LONG_REST_FACTOR: Final = 4.0  # the same after more than BUSY_S of work; slices also get smaller
LEFT_S_MIN: Final = 1e-5  # a rest with less time left is over: it may be too short to sleep
REST_S_MAX: Final = 0.1  # a limit, since other users' work may keep the loop busy


class Share:
    """State shared by the connections of one guest: their turns and their queued bytes.

    Work is measured in CPU seconds of the loop's thread, which do not depend on the load of the
    machine.
    """

    def __init__(self) -> None:
        self.connections = 0
        self.queued_bytes = 0  # encoded messages that the guest has not read
        self.slice_messages = SLICE_MESSAGES_MIN
        self._lock = trio.Lock()  # first come, first served
        self._began_cpu = 0.0  # start of the last slice, in CPU time of the loop
        self._began = 0.0  # the same by the clock
        self._own_rest_s = 0.0  # rest for the decoding itself

    def has_room(self, size: int) -> bool:
        """Return whether `size` more bytes may wait to be read."""
        return self.queued_bytes + size <= GUEST_QUEUE_BYTES_MAX

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; in the block decode a slice of `slice_messages`, or go on to connect."""
        async with self._lock:
            await self._rest()
            self._began_cpu, self._began = time.thread_time(), trio.current_time()
            yield
            took = time.thread_time() - self._began_cpu
            self._own_rest_s = LONG_REST_FACTOR * took if took > BUSY_S else 0.0

    async def _rest(self) -> None:
        """Wait until the loop has been idle long enough since the last slice began."""
        while True:
            busy = time.thread_time() - self._began_cpu
            factor = REST_FACTOR if busy <= BUSY_S else LONG_REST_FACTOR
            rest = max(min(factor * busy, REST_S_MAX), self._own_rest_s)
            left = self._began + busy + rest - trio.current_time()
            if left <= LEFT_S_MIN:
                break
            await trio.sleep(left)
        if busy > BUSY_S:
            nmessages = int(self.slice_messages * BUSY_S / busy)
            self.slice_messages = max(SLICE_MESSAGES_MIN, nmessages)
        else:
            self.slice_messages = min(SLICE_MESSAGES_MAX, self.slice_messages * 2)
