"""The backup of a world: it is made in slices, so that jobs start and end while it is made."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from flux_trio.cores.kvs.ops import BackedUp
from flux_trio.lab.world.slices import InSlices
from flux_trio.messages import FluxError
from flux_trio.store.stores import Store

Values: TypeAlias = dict[str, object]
"""What a store has: a value for each key."""


def values_of(store: Store) -> Values:
    """Return all that a store has."""
    keys = store.dir("")
    return dict(zip(keys, store.lookup(keys), strict=True))


class Backup:
    """The directory of a backup, and the work at it; the next backup takes the place of this one.

    `directory` is None if the store is in memory. `values` are what the store had when the backup
    was complete, None while it is not.
    """

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.values: Values | None = None
        self._work: InSlices[BackedUp] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether it has begun, and is neither complete nor stopped."""
        return self._work is not None

    def begin(
        self, make: Callable[[Callable[[], None]], object], values: Callable[[], Values]
    ) -> None:
        """Begin a backup: `make` makes it, and calls the function that it gets between slices.

        `values` returns those of the store.
        """
        self.stop()
        self.values = None
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)  # what is left of the one before

        def made(between: Callable[[], None]) -> BackedUp:
            try:
                make(between)
            except FluxError as error:
                return BackedUp(error.errnum, error.text)
            self.values = values()
            return BackedUp()

        self._work = InSlices(made)

    def go_on(self) -> BackedUp | None:
        """Make a slice of what is under way; return the result if it was the last one."""
        work = self._work
        if work is None or not work.go_on():
            return None
        self._work = None
        return work.result()

    def stop(self) -> None:
        """Stop it, as the instance does that ends in order, or whose client is gone."""
        work, self._work = self._work, None
        if work is not None:
            work.stop()
