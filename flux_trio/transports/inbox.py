"""An inbox: many tasks put items without waiting, one task reads all waiting items at once.

This is the hot path of the instance: each module, connection and client reads an inbox. An inbox
has no limit of its own. The sender checks `len` and knows what to do when it is too long.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Inbox(Generic[T]):
    """Items in the order they were put, for one reader, within one Trio thread."""

    __slots__ = ("_closed", "_items", "_reader")

    def __init__(self) -> None:
        self._items: list[T] = []
        self._reader: trio.lowlevel.Task | None = None  # set while the reader is parked
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def closed(self) -> bool:
        return self._closed

    def put(self, item: T) -> None:
        """Add `item`; drop it if the inbox is closed."""
        if self._closed:
            return
        self._items.append(item)
        if self._reader is not None:
            self._wake()

    def put_many(self, items: Iterable[T]) -> None:
        """Add `items` in order; drop them if the inbox is closed."""
        if self._closed:
            return
        self._items.extend(items)
        if self._reader is not None and self._items:
            self._wake()

    def close(self) -> None:
        """Accept no more items; the reader gets the waiting items, then trio.EndOfChannel."""
        self._closed = True
        if self._reader is not None:
            self._wake()

    def drain(self) -> list[T]:
        """Remove and return all waiting items, without waiting; may return []."""
        items, self._items = self._items, []
        return items

    async def get_batch(self, limit: int | None = None) -> list[T]:
        """Return waiting items, at least one; always a checkpoint; a cancel loses no item.

        At most `limit` items are returned; the others wait for the next call.

        Raises trio.EndOfChannel when closed and empty, trio.BusyResourceError for a second reader.
        """
        if self._items or self._closed:
            await trio.lowlevel.checkpoint()
        else:
            await self._park()
        batch, self._items = self._items, []
        if limit is not None and len(batch) > limit:
            batch, self._items = batch[:limit], batch[limit:]
        if not batch:
            raise trio.EndOfChannel
        return batch

    async def get_batch_until(self, deadline: float, limit: int | None = None) -> list[T]:
        """Like `get_batch`, but returns [] if `deadline` (by trio.current_time) comes first.

        Items that already wait are returned even after the deadline.
        """
        if not self._items:
            with trio.move_on_at(deadline):
                return await self.get_batch(limit)
            if not self._items:
                return []
        return await self.get_batch(limit)

    async def _park(self) -> None:
        if self._reader is not None:
            raise trio.BusyResourceError("another task already reads this inbox")
        self._reader = trio.lowlevel.current_task()

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._reader = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            trio.lowlevel.reschedule(reader)
