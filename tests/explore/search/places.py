"""What of a monitor decides later verdicts: its states, without the numbers and times of records.

Rules and views only compare the order of two places; 0 means no place. So two states that differ
only in the numbers of their records judge all later records alike, and `renumbered` makes them
equal. The type of a state marks its places by the annotation `Place`.
"""

from __future__ import annotations

import functools
import types
import typing
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable
from typing import Annotated, Any, TypeAlias

import msgspec

from flux_trio.judge import Monitor, MonitorState, Violation
from flux_trio.judge.engine.knowing import Known
from flux_trio.judge.engine.view import PLACE, Place

PlaceMap: TypeAlias = Callable[[int], int]
Move: TypeAlias = Callable[[Any, PlaceMap], Any]
"""A function that returns a value with other places in it."""


def renumbered(states: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Return states with their places replaced by 1, 2, ... in the same order. States come as pairs
    (type, state)."""
    pairs = [(mover(type_), state) for type_, state in states]
    at = {place: number for number, place in enumerate(_places_in(pairs))}.__getitem__
    return [state if move is None else move(state, at) for move, state in pairs]


def places_of(states: Iterable[tuple[Any, Any]]) -> list[int]:
    """Return the places in states in order, and 0. States come as pairs (type, state)."""
    return _places_in([(mover(type_), state) for type_, state in states])


def _places_in(pairs: Iterable[tuple[Move | None, Any]]) -> list[int]:
    found: set[int] = {0}

    def find(place: int) -> int:
        found.add(place)
        return place

    for move, state in pairs:
        if move is not None:
            move(state, find)
    return sorted(found)


@functools.cache
def mover(type_: Any) -> Move | None:
    """Return a function that replaces the places in values of a type; None if such values have no
    places."""
    origin, args = typing.get_origin(type_), typing.get_args(type_)
    if origin is Annotated:
        return _move_place if PLACE in args[1:] else mover(args[0])
    if origin in (typing.Union, types.UnionType):
        return _mover_of_union(args)
    if origin in (tuple, frozenset) and args:
        return _mover_of_items(origin, args)
    if isinstance(type_, type):
        return _mover_of_fields(type_)
    return None


def _move_place(place: Any, at: PlaceMap) -> Any:
    return at(place)


def _mover_of_union(args: tuple[Any, ...]) -> Move | None:
    """Choose by the class of a value: a union never has two tuple types, or place and number."""
    movers = [(_class_of(arg), move) for arg in args if (move := mover(arg)) is not None]
    if not movers:
        return None

    def move_one(value: Any, at: PlaceMap) -> Any:
        move = next((move for class_, move in movers if isinstance(value, class_)), None)
        return value if move is None else move(value, at)

    return move_one


def _class_of(type_: Any) -> type:
    if typing.get_origin(type_) is Annotated:
        return _class_of(typing.get_args(type_)[0])
    found = typing.get_origin(type_) or type_
    assert isinstance(found, type)
    return found


def _mover_of_items(origin: type, args: tuple[Any, ...]) -> Move | None:
    if origin is frozenset or args[-1] is Ellipsis:
        each = mover(args[0])
        if each is None:
            return None
        move_each = each
        return lambda value, at: origin(move_each(item, at) for item in value)
    movers = [mover(arg) for arg in args]
    if not any(movers):
        return None
    return lambda value, at: tuple(
        item if move is None else move(item, at) for move, item in zip(movers, value, strict=True)
    )


def _mover_of_fields(type_: type) -> Move | None:
    """Return the mover of a struct or named tuple."""
    is_struct = issubclass(type_, msgspec.Struct)
    if not is_struct and not hasattr(type_, "_fields"):
        return None
    hints = typing.get_type_hints(type_, include_extras=True)
    moves = {name: move for name, hint in hints.items() if (move := mover(hint)) is not None}
    if not moves:
        return None

    def move_fields(value: Any, at: PlaceMap) -> Any:
        changes = {name: move(getattr(value, name), at) for name, move in moves.items()}
        if is_struct:
            return msgspec.structs.replace(value, **changes)
        return value._replace(**changes)

    return move_fields


# --- a whole monitor


_Noted: TypeAlias = tuple[str, str, int | None, bool, bool, Place, tuple[Place, ...]]


def _noted(each: Violation) -> _Noted:
    """Return what of a violation decides later ones: not its words."""
    about = (each.clause, each.party, each.jobid, each.is_missing, each.may_wait)
    return (*about, each.record.n, each.because)


def snapshot(monitor: Monitor) -> Hashable:
    """Return what decides later verdicts: monitors with equal snapshots judge all later ones alike.

    It has the order of the records that states refer to, but not their numbers, and how old they
    are, but not their times.
    """
    standing = monitor.put_down()
    held = [(each, key, state) for each, at in monitor.kept() for key, state in standing.states[at]]
    typed: list[tuple[Any, Any]] = [(each.type, state) for each, _, state in held]
    typed.append((Known, standing.known))
    typed.append((tuple[_Noted, ...], tuple(map(_noted, standing.left))))
    typed.append((tuple[_Noted, ...], tuple(map(_noted, standing.first))))
    *live, known, left, first = renumbered(typed)
    pairs = zip(held, live, strict=True)
    states = frozenset((each, key, state) for (each, key, _), state in pairs)
    return (standing.facts, states, known, left, first, _ages(standing, places_of(typed)))


def _ages(standing: MonitorState, places: list[int]) -> Hashable:
    """Return how many of the `places` are old, when more will be, and when the clock samples."""
    clock, t = standing.clock, standing.t
    counts = [bisect_right(places, clock.old)]
    ages: list[tuple[float, int]] = []
    for at, n in clock.samples:
        count = bisect_right(places, n)
        if count > counts[-1]:
            counts.append(count)
            ages.append((at - t, count))
    return (counts[0], tuple(ages), clock.next_t - t)
