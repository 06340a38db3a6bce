"""Places of records that notice with which other places a rule compares them.

A rule learns something from the number of a record only by comparing it with that of another one.
So the numbers that a search gives to the judge are `Placed`: each knows its `Spot`, which is where
the states of the judge have it. A comparison of two of them tells the order (`Order.note`); any
other use of the number, such as arithmetic, raises NumberUsed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from math import inf
from typing import Any, Final

Note = Callable[["Spot", "Spot"], None]

TEXT: Final = "(a record)"
"""The text that every `Placed` number has in the sentence of a violation, so that sentences do not
differ by numbers."""


class NumberUsed(Exception):
    """The number of a record was used for more than a comparison with that of another record.

    It is no TypeError, since those are expected elsewhere: a key of a payload may not be hashable.
    """


class Spot:
    """A place in the judge's state where numbers of records stand: a field of a view's state, or a
    link between two parties.

    `name` has the view and the field, and the key if it has only names of parties. `others` are the
    spots of which it is known that rules compare their numbers with those that stand here. When a
    rule compares these with those of any other spot, `note` is called with both spots.
    """

    __slots__ = ("key", "name", "note", "number", "others")

    def __init__(self, name: str, key: Hashable, number: int, note: Note) -> None:
        self.name = name
        self.key = key
        self.number = number
        self.note = note
        self.others: set[Spot] = set()


class Placed:
    """The number of a record, as the search gives it to the judge. `spot` is None during its
    transition, since it is new then.

    A new record comes after all old ones, on each way to a state, so that comparing it is not
    noted. It is not an `int`, since much of Python reads the value of an int without calling a
    method: an index of a list, `range`, an encoder. But `__class__` says int, so that code which
    looks at the class treats it as a number. It is always true, because there is a record.
    """

    __slots__ = ("_number", "spot")

    def __init__(self, number: int, spot: Spot | None) -> None:
        self._number = number
        self.spot = spot

    @property  # type: ignore[misc]  # nobody changes it
    def __class__(self) -> Any:
        return int

    def __repr__(self) -> str:
        return TEXT

    def __format__(self, form: str) -> str:
        if form:
            raise _used(f"a text of the form {form}")
        return TEXT

    def __getattr__(self, name: str) -> Any:
        """Called for what is not defined here."""
        if hasattr(int, name):
            raise _used(name)
        raise AttributeError(f"the place of a record has no {name}")


def number_of(place: Any) -> int:
    """Return the number in a `Placed`; a plain number itself."""
    number: int = place._number if type(place) is Placed else place
    return number


def _used(how: str) -> NumberUsed:
    return NumberUsed(f"expected that places of records are compared and no more, got {how}")


def _noting(name: str) -> Callable[[Placed, Any], Any]:
    plain = getattr(operator, name)

    def compare(one: Placed, other: Any) -> Any:
        if type(other) is Placed:
            here, there = one.spot, other.spot
            if here is not None and there is not None and there not in here.others:
                here.note(here, there)
            return plain(one._number, other._number)
        if isinstance(other, int | float):
            if other in (0, inf, -inf):  # 0 says that there is no place
                return plain(one._number, other)
            raise _used(f"a comparison with {other}")
        return NotImplemented

    return compare


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise _used(name)

    return refuse


_COMPARISONS: Final = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__")
_TELLING: Final = frozenset({"__hash__", "__reduce__", "__reduce_ex__", "__getstate__"})
"""What is there for every object, and would tell the number."""
_KEPT: Final = frozenset(dir(object)) - _TELLING | {"__bool__"}

for _name in _COMPARISONS:
    setattr(Placed, _name, _noting(_name))
for _name in {*dir(int), *_TELLING} - _KEPT:
    if _name.startswith("__"):  # `__getattr__` has the others
        setattr(Placed, _name, _refusing(_name))
