"""Tells each number of a record (`Placed`) in the judge's state in which spot it stands.

That is done after each transition, and called settling here. What a transition has not changed was
settled before, and is shared with the state before it.
"""

from __future__ import annotations

import typing
from collections.abc import Hashable, Iterator, Sequence
from operator import is_
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.judge.engine.knowing import Knowledge, Known
from tests.explore.search.order import Order
from tests.explore.search.placed import Placed, Spot, number_of
from tests.explore.search.places import Move, mover

Places = dict[Spot, tuple[Placed, ...]]
"""By spot: the places that stand there."""
Numbers = dict[Spot, tuple[int, ...]]
"""By spot: the numbers of the places there; comparing these notes nothing."""
Origins = dict[Spot, list[Placed]]
"""By spot: the places that stand there now, each as it stood before the transition."""


class Numbering(dict[Hashable, int]):
    """Numbers for values: two have the same number if they are equal, and of one class.

    A hash would not do: those of -1 and -2 are the same. 0 is left for NOTHING.
    """

    def of(self, value: Hashable) -> int:
        """Return the number of a value."""
        return self.setdefault((type(value), value), len(self) + 1)


class _One(NamedTuple):
    """A state of a view; a number (`shape`) that stands for all of it but places; and these."""

    state: Any
    shape: int
    places: Places


class Settled(NamedTuple):
    """All states of one view, in the order of their keys, with places that know their spots."""

    held: tuple[tuple[Hashable, Any], ...]
    """The keys with their states, in the form in which a monitor takes them."""
    keys: tuple[Hashable, ...]
    states: tuple[Any, ...]
    ones: tuple[_One, ...]
    shape: int
    places: Places
    numbers: Numbers


NOTHING: Final = Settled((), (), (), (), 0, {}, {})


class Settler:
    """Tells the places in the states of one view their spots, whose names begin with `name`."""

    def __init__(self, name: str, type_: Any, order: Order) -> None:
        self._name = name
        self._order = order
        self._shapes = Numbering()
        self._move: Any = mover(type_)
        self._fields = None if self._move is None else _fields_of(type_)

    def settle(
        self, held: Sequence[tuple[Hashable, Any]], before: Settled, origins: Origins
    ) -> Settled:
        """Return the states with their places in spots; note in `origins` the places of the states
        that have changed."""
        keys = tuple([key for key, _ in held])
        if keys == before.keys:
            if all(map(is_, [state for _, state in held], before.states)):
                return before
        else:
            held = sorted(held, key=_text_of_key)
            keys = tuple([key for key, _ in held])
        known = dict(zip(before.keys, before.ones, strict=True))
        ones = []
        for key, state in held:
            one = known.get(key)
            if one is None or one.state is not state:
                one = self._settle_one(key, state, origins)
            ones.append(one)
        places: Places = {}
        for one in ones:
            for spot, stand in one.places.items():
                places[spot] = (*places[spot], *stand) if spot in places else stand
        shape = self._shapes.of((keys, tuple([one.shape for one in ones])))
        states = tuple([one.state for one in ones])
        settled = tuple(zip(keys, states, strict=True))
        return Settled(settled, keys, states, tuple(ones), shape, places, numbers_of(places))

    def _settle_one(self, key: Hashable, state: Any, origins: Origins) -> _One:
        if self._fields is None:
            return _One(state, self._shapes.of(state), {})
        names = _names_in(key)
        places: Places = {}
        changes = {}
        for field, move in self._fields.items():
            spot = self._order.spot(self._name + field + names, () if names else key)
            stand: list[Placed] = []
            origin = origins.setdefault(spot, [])

            def settle(
                place: Any,
                spot: Spot = spot,
                stand: list[Placed] = stand,
                origin: list[Placed] = origin,
            ) -> Any:
                if not place:
                    return 0
                assert type(place) is Placed, (spot.name, place)
                origin.append(place)
                settled = Placed(number_of(place), spot)
                stand.append(settled)
                return settled

            value = getattr(state, field[1:]) if field else state
            changes[field[1:]] = move(value, settle)
            if stand:
                places[spot] = tuple(stand)
        settled_state = _replaced(state, changes)
        return _One(settled_state, self._shapes.of(self._move(settled_state, bool)), places)


def numbers_of(places: Places) -> Numbers:
    """Return the numbers of `Placed` values."""
    return {spot: tuple(map(number_of, stand)) for spot, stand in places.items()}


def _fields_of(type_: Any) -> dict[str, Move]:
    """Return the movers of a struct or named tuple by field, ".field"; of another type by ""."""
    is_class = isinstance(type_, type)
    if is_class and (issubclass(type_, msgspec.Struct) or hasattr(type_, "_fields")):
        hints = typing.get_type_hints(type_, include_extras=True)
        moves = {f".{name}": mover(hint) for name, hint in hints.items()}
    else:
        moves = {"": mover(type_)}
    return {name: move for name, move in moves.items() if move is not None}


def _replaced(state: Any, changes: dict[str, Any]) -> Any:
    if "" in changes:
        return changes[""]
    if isinstance(state, msgspec.Struct):
        return msgspec.structs.replace(state, **changes)
    return state._replace(**changes)


def _names_in(key: Hashable) -> str:
    """Return a key that has only names of parties, as text; "" for any other key."""
    if isinstance(key, str):
        return f" {key}"
    if isinstance(key, tuple) and key and all(isinstance(each, str) for each in key):
        return f" {'>'.join(key)}"
    return ""


def _text_of_key(held: tuple[Hashable, Any]) -> str:
    return repr(held[0])


# --- what the parties have taken up


class KnowledgeRead(Knowledge):
    """What parties have surely handled (`judge.engine.knowing`); notes which parts of it rules
    read."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        self._order = order

    def knew(self, party: str, n: int) -> bool:
        self._order.read(_answers(party))
        self._order.read(_turn(party))
        return super().knew(party, n)

    def requests_of(self, party: str) -> Iterator[tuple[tuple[str, int], int]]:
        self._order.read(_answers(party))
        return super().requests_of(party)

    def may_act_on(self, party: str) -> int:
        self._order.read(_turn(party))
        return super().may_act_on(party)

    def awaits(self, party: str, since: int) -> bool:
        self._order.read(_calls(party))
        return super().awaits(party, since)


class SettledKnown(NamedTuple):
    """The state of what parties have surely handled, with places that know their spots.

    `shape` and `places` have only the parts that rules read: two states in which these are equal
    are not told apart by rules.
    """

    known: Known
    shape: Hashable
    places: Places


def settle_known(known: Known, order: Order, origins: Origins) -> SettledKnown:
    """Return the state of what parties have surely handled, with places that know their spots."""
    turns, answered, asked, apart, calls = known
    places: Places = {}

    def settle(place: Any, name: str, key: Hashable, *, is_read: bool) -> Any:
        if not place:
            return 0
        assert type(place) is Placed, (name, place)
        spot = order.spot(name, key)
        origins.setdefault(spot, []).append(place)
        settled = place if place.spot is spot else Placed(number_of(place), spot)
        if is_read:
            places[spot] = (settled,)
        return settled

    shape: list[Hashable] = [apart]
    turns_: list[Any] = []
    for party, (began, has_sent, heard) in turns:
        is_read = _turn(party) in order.parts
        began_ = settle(began, f"began {party}", (), is_read=is_read)
        heard_ = settle(heard, f"heard {party}", (), is_read=is_read)
        turns_.append((party, (began_, has_sent, heard_)))
        if is_read:
            shape.append((party, has_sent, heard != 0))
    answered_: list[Any] = []
    for party, n in answered:
        is_read = _answers(party) in order.parts
        answered_.append((party, settle(n, f"answered {party}", (), is_read=is_read)))
        if is_read:
            shape.append(party)
    asked_: list[Any] = []
    for key, (n, nalike) in sorted(asked, key=_text_of_key):
        party = key[0]  # type: ignore[index]
        is_read = _answers(party) in order.parts
        asked_.append((key, (settle(n, f"asked {party}", key, is_read=is_read), nalike)))
        if is_read:
            shape.append((key, nalike))
    calls_: list[Any] = []
    for party, matchtag, n, is_heard in calls:
        is_read = _calls(party) in order.parts
        made = settle(n, f"called {party}", matchtag, is_read=is_read)
        calls_.append((party, matchtag, made, is_heard))
        if is_read:
            shape.append((party, matchtag, is_heard))
    settled_known = (tuple(turns_), tuple(answered_), tuple(asked_), apart, tuple(calls_))
    return SettledKnown(settled_known, tuple(shape), places)


def _turn(party: str) -> str:
    return f"turn {party}"


def _answers(party: str) -> str:
    return f"answers {party}"


def _calls(party: str) -> str:
    return f"calls {party}"
