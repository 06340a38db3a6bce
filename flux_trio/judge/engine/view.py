"""Views: states that are folded from the trace once, for all rules that read them.

A rule keeps its own state if only one clause needs it. Most clauses of a conversation need the same
few states (does the job hold resources, is a request open); a view keeps these. The states of views
are hashable, as those of rules. A rule sees the states before the record that it judges.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from flux_trio.judge.engine.declared import Clears, Fold, KeyOf, Parts, Seen, Selector, View
from flux_trio.judge.engine.packed import Packing
from flux_trio.trace import Record

__all__ = [
    "Clears",
    "KeyOf",
    "Live",
    "Seen",
    "View",
    "seen_once",
    "view",
]

T = TypeVar("T")


class Live(msgspec.Struct, frozen=True, gc=False):
    """A state of several fields; compared and hashed by them.

    `but` returns a copy with other values of some fields, as msgspec.structs.replace does. It is
    the method of C itself: a method of Python around it takes ten times as long.
    """

    but = msgspec.Struct.__replace__


def seen_once(read: Callable[[Record, Seen], T]) -> Callable[[Record, Seen], T]:
    """Cache the result for the latest record, because many rules read the same in turn."""
    latest: tuple[Record, Seen] | None = None
    found: Any = None

    def remembered(record: Record, seen: Seen) -> T:
        nonlocal latest, found
        if latest is None or latest[0] is not record or latest[1] is not seen:
            found = read(record, seen)
            latest = (record, seen)
        result: T = found
        return result

    return functools.wraps(read)(remembered)


def view(
    name: str,
    *selectors: Iterable[Selector],
    fold: Fold,
    parts: Parts | None = None,
    key: KeyOf | None = None,
    many: Iterable[Selector] = (),
    clears: Clears | None = None,
    reads: tuple[View, ...] = (),
    state: Any = None,
    packing: Packing | None = None,
) -> View:
    """Return a view of these selectors and of `many`, with `parts`, `key` or both."""
    many = tuple(many)
    flat = (*(selector for group in selectors for selector in group), *many)
    return View(name, flat, fold, parts, key, many, clears, reads, state, packing)
