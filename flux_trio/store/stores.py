"""What keeps the values: the interface of a store, and the store in memory.

Synchronous; one caller at a time. A commit is stored whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import ClassVar, Protocol

from sortedcontainers import SortedDict

from flux_trio.cores.kvs.ops import Damaged, Op, Page, PageRead, Put, Swept, Unlink, span
from flux_trio.messages import FluxError, Level


class StoreError(FluxError):
    """A store cannot be opened, read or written: EIO or ENOSPC, and a text that names the file."""


class Store(Protocol):
    """What the service needs of a store; every method may raise StoreError."""

    waits_for_disk: ClassVar[bool]
    """Whether to call it on a worker thread."""

    remarks: list[tuple[Level, str]]
    """What the operator should know of the state as it was found."""

    def commit(self, ops: Iterable[Op]) -> None:
        """Apply `ops` in order, all or none; durable on return."""

    def lookup(self, keys: Sequence[str]) -> Sequence[str | Damaged | None]:
        """The value of each of `keys`, None where there is none."""

    def dir(self, prefix: str) -> list[str]:
        """Every key below `prefix` ("" for all), sorted; `prefix` itself is not among them."""

    def page(self, page: Page) -> PageRead:
        """Some of the keys below a prefix."""

    def count(self, prefix: str) -> int:
        """How many keys there are below `prefix`."""

    def sweep(self, after: str) -> Swept:
        """Read some of the keys after `after` and tell which of them are damaged."""

    def reclaim(self, kept: int, pages_max: int) -> int:
        """Give back at most so many pages that are free, down to `kept`; how many still are."""

    def close(self) -> None:
        """Leave everything in order; no other method may follow."""


class MemoryStore:
    """Values in a dictionary, gone with the process. Appending to a long value copies it."""

    waits_for_disk: ClassVar[bool] = False

    def __init__(self) -> None:
        self.remarks: list[tuple[Level, str]] = []
        self._values: SortedDict[str, str] = SortedDict()

    def commit(self, ops: Iterable[Op]) -> None:
        """Apply `ops`; they cannot fail."""
        for op in ops:
            if isinstance(op, Unlink):
                self._values.pop(op.key, None)
                for key in self.dir(op.key):
                    del self._values[key]
            elif isinstance(op, Put):
                self._values[op.key] = op.text
            else:
                self._values[op.key] = self._values.get(op.key, "") + op.text

    def lookup(self, keys: Sequence[str]) -> list[str | None]:
        """The value of each of `keys`, None where there is none."""
        return [self._values.get(key) for key in keys]

    def dir(self, prefix: str) -> list[str]:
        """Every key below `prefix`, sorted."""
        return list(self._values.irange(*span(prefix), inclusive=(False, False)))

    def page(self, page: Page) -> PageRead:
        """Some of the keys below a prefix."""
        between = self._values.irange(
            *page.bounds(), inclusive=(False, False), reverse=page.reverse
        )
        keys = list(islice(between, page.limit))
        return PageRead(keys, self.lookup(keys) if page.values else [])

    def count(self, prefix: str) -> int:
        """How many keys there are below `prefix`."""
        after, before = span(prefix)
        count: int = self._values.bisect_left(before) - self._values.bisect_right(after)
        return count

    def sweep(self, after: str) -> Swept:  # noqa: ARG002 - the shape of a store
        """Nothing can be damaged."""
        return Swept(None, [])

    def reclaim(self, kept: int, pages_max: int) -> int:  # noqa: ARG002 - the shape of a store
        """Nothing is free."""
        return 0

    def close(self) -> None:
        """Nothing to put in order."""
