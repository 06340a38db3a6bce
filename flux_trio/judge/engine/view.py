"""What rules and views declare about the records that they read, and views themselves.

A view is a state that is folded from the trace once, for all rules that read it. A rule keeps its
own state if only one clause needs it. Most clauses of a conversation need the same few states (does
the job hold resources, is a request open); a view keeps these. The states of views are hashable, as
those of rules. A rule sees the states before the record that it judges.

Traits are small values of a record that help to choose its rules and views. The kind, message type,
topic and trait values of a record decide which rules and views read it (`readers`). A selector may
select some values of a trait (`Mark`); a rule may judge a trait (`Rules.by`). A trait should have
few values, because each value makes one more kind of records.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from flux_trio.judge.engine.facts import Facts
from flux_trio.judge.engine.packed import Packing
from flux_trio.trace import Record

T = TypeVar("T")
Key: TypeAlias = Hashable
Value: TypeAlias = Hashable
Clears: TypeAlias = Callable[[Record, Facts], bool]
PLACE: Final = "place"
Place: TypeAlias = Annotated[int, PLACE]
"""The `n` of a record in a state; 0 is no record. Rules and views only compare two places."""


class Selector(NamedTuple):
    """Selects records by kind, and messages by type and topic.

    `topic` may have a star for any text; "<exec>" stands for the name of the execution service, as
    in "<exec>.start". `mark` selects only records with some values of a trait. While the view
    `live` has no state, no record is selected; OWN means the states of the view itself.
    """

    kind: str
    type: str = ""
    topic: str = ""
    mark: Mark | None = None
    live: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Trait:
    """A value that `read` finds in the records of `selectors`; other records do not have the trait.

    `views` returns the views that `read` uses.
    """

    name: str
    selectors: tuple[Selector, ...]
    read: Callable[[Record, Seen], Value]
    views: Callable[[], tuple[View, ...]] = tuple


class Mark(NamedTuple):
    """Selects the records whose trait has a value for which `holds` returns True."""

    trait: Trait
    holds: Callable[[Any], bool]


Values: TypeAlias = Mapping[Trait, Value]
"""The traits of a record with their values."""


class Seen(Protocol):
    """The state of the monitor that a rule may read while it judges a record."""

    @property
    def facts(self) -> Facts:
        """The roles of the parties."""

    @property
    def states(self) -> Mapping[Any, MutableMapping[Any, Any]]:
        """The states by view and key; faster than `at`, for keys that are surely hashable."""

    def at(self, view: View, key: Key = ()) -> Any:
        """Return the state of `view` under `key`, or None, also if `key` is not hashable."""

    def all(self, view: View) -> Mapping[Any, Any]:
        """Return all states of `view`. Only for rare records: there may be a million jobs."""

    def knew(self, party: str, n: int) -> bool:
        """Whether `party` must have handled the message that it received at record `n`.

        What it sends now may have crossed with that message otherwise. `knowing` has the proofs.
        """

    def takes_at_once(self, party: str) -> bool:
        """Whether a receipt says when `party` took a message, and not when it was forwarded."""

    def requests_of(self, party: str) -> Iterable[tuple[tuple[str, int], int]]:
        """Yield the requests that `party` has received and not answered: client, matchtag and
        record.

        Of very many only the latest are known. Only for rare records, and for traces with
        matchtags.
        """

    def may_act_on(self, party: str) -> int:
        """Return the record of the message that `party` may still be handling in its turn; 0 if
        there is none.
        """

    def is_old(self, n: int) -> bool:
        """Whether record `n` is a second old, so that a party that acts on it has surely done
        so.
        """


KeyOf: TypeAlias = Callable[[Record], Key | None]
Parts: TypeAlias = Callable[[Record, Seen], Iterable[tuple[Key, Any]]]
Fold: TypeAlias = Callable[[Any, Any, Record, Seen], Hashable | None]


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A fold over the records of `selectors`, by key.

    `key` returns the one key of a record; None skips the record. `parts` returns several keys, each
    with its part of the record. If both are given, `parts` is used for the records of `many`.
    `fold` returns the next state (None removes it) from the state, the part (None if there is only
    a key), the record and the monitor's state.

    `packing` says which states are kept as numbers. `clears` returns True for a record that removes
    all states (`scheduler_lost`). `reads` are the views that `parts` and `fold` read. `state` is
    the type of a state; by default it is the return annotation of `fold`.
    """

    name: str
    selectors: tuple[Selector, ...]
    fold: Fold
    parts: Parts | None = None
    key: KeyOf | None = None
    many: tuple[Selector, ...] = ()
    clears: Clears | None = None
    reads: tuple[View, ...] = ()
    state: Any = None
    packing: Packing | None = None

    @property
    def type(self) -> Any:
        if self.state is not None:
            return self.state
        return typing.get_type_hints(self.fold, include_extras=True).get("return")

    def all_reads(self) -> Iterator[View]:
        """Yield the views that this one reads, or the traits of its selectors."""
        yield from self.reads
        yield from views_marked(self.selectors)


def views_marked(selectors: Iterable[Selector]) -> Iterator[View]:
    """Yield the views that the traits of these selectors read."""
    for selector in selectors:
        if selector.mark is not None:
            yield from selector.mark.trait.views()


def put(states: MutableMapping[Any, Any], key: Key, state: Hashable | None) -> None:
    """Store a state; None removes it."""
    if state is None:
        states.pop(key, None)
    else:
        states[key] = state


# --- for views


class Live(msgspec.Struct, frozen=True, gc=False):
    """A state of several fields; compared and hashed by them.

    `but` returns a copy with other values of some fields, as msgspec.structs.replace does. It is
    the method of C itself: a method of Python around it takes ten times as long.
    """

    but = msgspec.Struct.__replace__


def seen_once(read: Callable[[Record, Seen], T]) -> Callable[[Record, Seen], T]:
    """Cache the result for the latest record, because many rules read the same in turn."""
    latest: tuple[Record | None, Seen | None, Any] = (None, None, None)

    def cached(record: Record, seen: Seen) -> T:
        nonlocal latest
        found = latest  # replaced as a whole, since another thread may judge another trace
        if found[0] is not record or found[1] is not seen:
            latest = found = (record, seen, read(record, seen))
        result: T = found[2]
        return result

    return functools.wraps(read)(cached)


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
