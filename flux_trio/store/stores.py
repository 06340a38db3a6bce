"""The interface of a store, and the store in memory.

Its methods are synchronous; one caller at a time. A commit is stored completely or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar, Protocol

from sortedcontainers import SortedList

from flux_trio.cores.kvs.ops import (
    Append,
    Damaged,
    Op,
    Page,
    PageRead,
    Swept,
    Unlink,
    first_values,
    span,
)
from flux_trio.messages import Errno, FluxError, Level


class StoreError(FluxError):
    """A store cannot be opened, read or written: EIO or ENOSPC; the text names the file."""


def unwritable(path: Path, error: OSError) -> StoreError:
    """Return the StoreError for a file that cannot be written."""
    errnum = Errno.ENOSPC if error.errno == Errno.ENOSPC else Errno.EIO
    return StoreError(errnum, f"{path}: cannot be written: {error.strerror}")


class Store(Protocol):
    """The interface of a store for the kvs; every method may raise StoreError."""

    waits_for_disk: ClassVar[bool]
    """Whether to call it in a worker thread."""

    remarks: list[tuple[Level, str]]
    """Messages for the operator about the state of the file when it was opened."""

    def commit(self, ops: Iterable[Op]) -> None:
        """Apply `ops` in order, all or none; they are durable on return."""

    def give_reserve(self) -> bool:
        """Give away the room that is set aside, if there is any; return whether there was."""

    def keep_reserve(self) -> bool:
        """Set room aside again if it was given away; return whether it still is away."""

    def lookup(
        self, keys: Sequence[str], chars_max: int | None = None, at_least: int = 1
    ) -> Sequence[str | Damaged | None]:
        """Return the value of each key: None without a value, Damaged for a damaged value.

        The values end with the one that goes beyond `chars_max`, and later ones are not read; the
        first `at_least` are returned in any case.
        """

    def dir(self, prefix: str) -> list[str]:
        """Return every key below `prefix` ("" for all), sorted, without `prefix` itself."""

    def page(self, page: Page) -> PageRead:
        """Return some of the keys below a prefix, with their values if requested."""

    def count(self, prefix: str) -> int:
        """Return the number of keys below `prefix`."""

    def sweep(self, after: str) -> Swept:
        """Read the next keys after `after`; report damaged ones."""

    @property
    def has_much_unsettled(self) -> bool:
        """Whether it is time for `settle`: commits have put off much work, or some is under way."""

    def settle(self) -> bool:
        """Do some of the work that commits have put off; return whether more is under way."""

    def reclaim(self, kept: int, pages_max: int) -> int:
        """Give back at most `pages_max` free pages, until `kept` are left; return how many are."""

    def disk_free(self) -> int | None:
        """Return how many bytes of its disk are free for this user; None if it is on no disk."""

    def backup(self, path: Path, between: Callable[[], None]) -> None:
        """Copy the store to the new file `path`; it is durable on return.

        `between` is called often meanwhile, and may call other methods. An exception from it stops
        the copy, and nothing is left of it.
        """

    def close(self) -> None:
        """Close the files; no other method may be called after it."""


class MemoryStore:
    """Values in a dictionary, lost with the process. An append to a long value copies it."""

    waits_for_disk: ClassVar[bool] = False

    def __init__(self) -> None:
        self.remarks: list[tuple[Level, str]] = []
        self.take_up({})

    def commit(self, ops: Iterable[Op]) -> None:
        """Apply `ops`; they cannot fail."""
        values, keys = self._values, self._keys
        for op in ops:
            key = op.key
            if type(op) is Unlink:  # isinstance of a Struct costs four times as much
                below = self.dir(key)
                for gone in [key, *below] if key in values else below:
                    del values[gone]
                    keys.remove(gone)
            elif key not in values:
                values[key] = op.text  # type: ignore[union-attr]
                keys.add(key)
            elif type(op) is Append:
                values[key] += op.text
            else:
                values[key] = op.text  # type: ignore[union-attr]

    def give_reserve(self) -> bool:
        return False

    def keep_reserve(self) -> bool:
        return False

    def put_down(self) -> dict[str, str]:
        """Return all values, by key in order."""
        return {key: self._values[key] for key in self._keys}

    def take_up(self, values: dict[str, str]) -> None:
        """Replace all values by these."""
        self._values = dict(values)
        self._keys: SortedList[str] = SortedList(values)

    def lookup(
        self, keys: Sequence[str], chars_max: int | None = None, at_least: int = 1
    ) -> list[str | None]:
        return list(first_values(map(self._values.get, keys), chars_max, at_least))

    def dir(self, prefix: str) -> list[str]:
        return list(self._keys.irange(*span(prefix), inclusive=(False, False)))

    def page(self, page: Page) -> PageRead:
        between = self._keys.irange(*page.bounds(), inclusive=(False, False), reverse=page.reverse)
        keys = list(islice(between, page.limit))
        return PageRead(keys, self.lookup(keys) if page.values else [])

    def count(self, prefix: str) -> int:
        after, before = span(prefix)
        count: int = self._keys.bisect_left(before) - self._keys.bisect_right(after)
        return count

    def sweep(self, after: str) -> Swept:  # noqa: ARG002 - the interface of a store
        """Report no damage: values in memory are not damaged."""
        return Swept(None, [])

    @property
    def has_much_unsettled(self) -> bool:
        return False

    def settle(self) -> bool:
        """Do nothing: a commit puts off no work."""
        return False

    def reclaim(self, kept: int, pages_max: int) -> int:  # noqa: ARG002 - the interface
        """Return 0: a dictionary has no pages."""
        return 0

    def disk_free(self) -> int | None:
        return None

    def backup(self, path: Path, between: Callable[[], None]) -> None:  # noqa: ARG002
        raise StoreError(Errno.EINVAL, "the store is in memory only: there is no file to copy")

    def close(self) -> None:
        """Do nothing: there is no file."""
