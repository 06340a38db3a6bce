"""An inbox: many put without waiting, one task reads everything that waits.

The hot path of the instance: a module, a connection and a client each read one. It has no
bound of its own, because whoever puts knows what to do about a full one: they look at `len`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Inbox(Generic[T]):
    """Items in the order they were put, for one reader, on one Trio thread."""

    __slots__ = ("_closed", "_items", "_reader")

    def __init__(self) -> None:
        self._items: list[T] = []
        self._reader: trio.lowlevel.Task | None = None  # set while the reader is parked
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def closed(self) -> bool:
        """`close` was called: nothing more is taken in."""
        return self._closed

    def put(self, item: T) -> None:
        """Add `item`; once closed it is dropped, since nobody will read it."""
        if self._closed:
            return
        self._items.append(item)
        if self._reader is not None:
            self._wake()

    def put_many(self, items: Iterable[T]) -> None:
        """Add `items` in order, as `put` does."""
        if self._closed:
            return
        self._items.extend(items)
        if self._reader is not None and self._items:
            self._wake()

    def close(self) -> None:
        """Take in no more; the reader gets what waits, then trio.EndOfChannel."""
        self._closed = True
        if self._reader is not None:
            self._wake()

    def drain(self) -> list[T]:
        """Everything that waits, taken out without waiting; possibly nothing."""
        items, self._items = self._items, []
        return items

    async def get_batch(self) -> list[T]:
        """Everything that waits, at least one item; always a checkpoint, and none lost by it.

        Raises trio.EndOfChannel when closed and empty, trio.BusyResourceError for a second reader.
        """
        if self._items or self._closed:
            await trio.lowlevel.checkpoint()
        else:
            await self._park()
        batch, self._items = self._items, []
        if not batch:
            raise trio.EndOfChannel
        return batch

    async def get_batch_until(self, deadline: float) -> list[T]:
        """Like `get_batch`, or [] when `deadline` (by trio.current_time) comes first.

        What already waits is returned even when the deadline has passed.
        """
        if not self._items:
            with trio.move_on_at(deadline):
                return await self.get_batch()
            if not self._items:
                return []
        return await self.get_batch()

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
