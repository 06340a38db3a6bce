"""Maintenance of a store on disk: it does the work that commits have put off, gives free pages
back, and reads all values.

A sweep reads every value, a slice at a time, so that damage is found early, while a copy of the
value may still exist. A commit waits for at most one slice, about a millisecond.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec

from flux_trio.cores.kvs.ops import Damaged
from flux_trio.store.stores import Store, StoreError

SETTLE_AFTER_S: Final = 30.0
"""Between two times at which the store does what commits have put off. A key that changes several
times meanwhile is written once. On a damaged disk, the changes of this time are lost together."""

TEND_AFTER_S: Final = 60.0  # after the start, which has other work
SLICE_S: Final = 0.1  # between two slices: about 1 % of a core, and 600 keys a second
SWEEP_S: Final = 24 * 3600.0  # from the end of one sweep to the next
IDLE_S: Final = 10.0  # between two checks of free pages while no sweep is under way
PAGES_KEPT: Final = 1024  # free pages that are kept for the next commits
PAGES_MAX: Final = 256  # given back in a slice


class Tending(msgspec.Struct, frozen=True):
    """The state of the maintenance. Times are those of Trio's clock."""

    at: float  # when the next slice is due
    sweep_at: float = 0.0  # the next sweep does not begin before it
    after: str = ""  # the last key that the sweep has read, "" at its beginning


class Tended(msgspec.Struct, frozen=True):
    """The result of a slice."""

    before: Tending
    damaged: list[Damaged]
    after: str | None  # None if no sweep is under way
    free: int  # free pages

    def then(self, now: float) -> Tending:
        """Return when the next slice is due, and where it begins."""
        swept = self.before.at >= self.before.sweep_at and self.after is None
        sweep_at = now + SWEEP_S if swept else self.before.sweep_at
        busy = self.after is not None or self.free > PAGES_KEPT
        return Tending(now + (SLICE_S if busy else IDLE_S), sweep_at, self.after or "")


def settle(store: Store) -> float:
    """Do some of the work that commits have put off; return seconds until the next time."""
    with suppress(StoreError):  # the disk is full; any other error comes again at a commit
        if store.settle():
            return 0.0
    return SETTLE_AFTER_S


def tend(store: Store, tending: Tending) -> Tended:
    """Do one slice."""
    try:
        free = store.reclaim(PAGES_KEPT, PAGES_MAX)
    except StoreError:  # the disk is full; any other error comes again at a commit
        free = 0
    if tending.at < tending.sweep_at:
        return Tended(tending, [], None, free)
    try:
        swept = store.sweep(tending.after)
    except StoreError as error:
        return Tended(tending, [Damaged(error.text)], None, free)
    return Tended(tending, swept.damaged, swept.after, free)
