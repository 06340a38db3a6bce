"""Views: what a trace has shown of something so far, folded once for all rules that read it.

A rule that keeps its own state is simple where one clause needs it; most clauses of a conversation
ask of the same few things (does the job hold resources, is a request open), which a view keeps.
Views are as hashable as rule states; a rule sees them as they were before the record it judges.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import msgspec

from flux_trio.judge.engine.facts import Facts
from flux_trio.judge.engine.leg import Key, Leg
from flux_trio.trace import Record

T = TypeVar("T")

Clears: TypeAlias = Callable[[Record, Facts], bool]


class Live(msgspec.Struct, frozen=True, gc=False):
    """A state of several fields: compared and hashed by them."""

    def but(self, **changes: Any) -> Self:
        """The same with other values of some fields."""
        return msgspec.structs.replace(self, **changes)


class Seen(Protocol):
    """What a rule may ask for while it judges a record."""

    @property
    def facts(self) -> Facts:
        """Who plays which part."""

    def at(self, view: View, key: Key = ()) -> Any:
        """What `view` has under `key`; None when nothing is live there."""

    def all(self, view: View) -> Mapping[Any, Any]:
        """Everything that is live in `view`. For rare records: there may be a million jobs."""

    def knew(self, party: str, n: int) -> bool:
        """Whether `party` has surely looked at what it took up at place `n`.

        It may take up several messages before it acts on the first: those since it last came back
        to its inbox crossed with what it sends now.
        """


KeyOf: TypeAlias = Callable[[Record], Key | None]
Parts: TypeAlias = Callable[[Record, Seen], Iterable[tuple[Key, Any]]]
Fold: TypeAlias = Callable[[Any, Any, Record, Seen], Hashable | None]


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A fold over the records of `legs`, by key.

    `parts` tells the keys a record is about, with what it says of each; or `key` the only one, a
    key of None passing it over. With both, `parts` is for the records of `many`. `fold` makes the
    next state (None: nothing is live any more) of the state, that part (None where there is but a
    key), the record and what else is seen.
    `clears` is as for rules. `reads` are the views that `parts` and `fold` look at. `state` is the
    type of a state; None: what `fold` is annotated to return.
    """

    name: str
    legs: tuple[Leg, ...]
    fold: Fold
    parts: Parts | None = None
    key: KeyOf | None = None
    many: tuple[Leg, ...] = ()
    clears: Clears | None = None
    reads: tuple[View, ...] = ()
    state: Any = None

    @property
    def type(self) -> Any:
        if self.state is not None:
            return self.state
        return typing.get_type_hints(self.fold, include_extras=True).get("return")


def seen_once(read: Callable[[Record, Seen], T]) -> Callable[[Record, Seen], T]:
    """Remember what was read of the latest record: many rules ask for the same in turn."""
    latest: list[Any] = [None, None, None]

    def remembered(record: Record, seen: Seen) -> T:
        if latest[0] is not record or latest[1] is not seen:
            latest[:] = [record, seen, read(record, seen)]
        found: T = latest[2]
        return found

    return functools.wraps(read)(remembered)


def view(
    name: str,
    *legs: Iterable[Leg],
    fold: Fold,
    parts: Parts | None = None,
    key: KeyOf | None = None,
    many: Iterable[Leg] = (),
    clears: Clears | None = None,
    reads: tuple[View, ...] = (),
    state: Any = None,
) -> View:
    """A view of these legs and of `many`, with `parts`, `key` or both."""
    many = tuple(many)
    flat = (*(leg for group in legs for leg in group), *many)
    return View(name, flat, fold, parts, key, many, clears, reads, state)
