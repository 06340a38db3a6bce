"""Places of records that notice with which other places a rule compares them.

A rule learns something from the number of a record only by comparing it with that of another one.
So the numbers that a search gives to the judge are `Placed`: each knows its `Spot`, which is where
the states of the judge have it. A comparison of two of them tells the order (`Order.note`); any
other use of the number, such as arithmetic, raises.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, Self

Note = Callable[["Spot", "Spot"], None]


class Spot:
    """Where places stand: a field of the state of a view or rule under a key, or a link.

    `name` has the view and the field, and the key if it has only names of parties. `others` are the
    spots with which a comparison is expected; `note` is called with the spots of all others.
    """

    __slots__ = ("key", "name", "note", "number", "others")

    def __init__(self, name: str, key: Hashable, number: int, note: Note) -> None:
        self.name = name
        self.key = key
        self.number = number
        self.note = note
        self.others: set[Spot] = set()


class Placed(int):
    """The number of a record. `spot` is None while its transition goes on: it is a new one.

    A new record comes after all old ones, on each way to a state, so that comparison is not noted.
    """

    spot: Spot | None

    def __new__(cls, number: int, spot: Spot | None) -> Self:
        made = int.__new__(cls, number)
        made.spot = spot
        return made

    __hash__ = None  # type: ignore[assignment]


def _noting(name: str) -> Callable[[Placed, Any], Any]:
    plain = getattr(int, name)

    def compare(one: Placed, other: Any) -> Any:
        if type(other) is Placed:
            here, there = one.spot, other.spot
            if here is not None and there is not None and there not in here.others:
                here.note(here, there)
        elif other and isinstance(other, int):  # 0 says that there is no place
            raise TypeError(f"expected a comparison with the place of a record, got {other}")
        return plain(one, other)

    return compare


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise TypeError(f"expected that places of records are compared and no more, got {name}")

    return refuse


_COMPARISONS: Final = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__")
_OF_TWO: Final = (
    *("add", "sub", "mul", "floordiv", "truediv", "mod", "divmod", "pow"),
    *("lshift", "rshift", "and", "or", "xor"),
)
_OF_ONE: Final = ("__neg__", "__abs__", "__invert__", "__float__")

for _name in _COMPARISONS:
    setattr(Placed, _name, _noting(_name))
for _name in _OF_TWO:
    for _prefix in ("", "r"):
        setattr(Placed, f"__{_prefix}{_name}__", _refusing(_name))
for _name in _OF_ONE:
    setattr(Placed, _name, _refusing(_name))
