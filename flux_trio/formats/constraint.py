"""RFC 31 job constraints: which execution targets a job accepts.

A constraint is parsed once; `select` then returns the matching targets as a set of ranks. The RFC
leaves the meaning of an empty list of values to the implementation. Here an empty `properties` list
matches every target; an empty `hostlist` or `ranks` list matches no target. `not` takes at most one
value, as the RFC requires.

A text of a few characters can name very many hosts or ranks. So a constraint keeps its hostlists
and idsets as texts, and `select` cuts them to the targets before it expands anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar, final

import msgspec

from flux_trio.formats.characters import check_property_name
from flux_trio.formats.errors import FormatError, Words
from flux_trio.formats.hostlist import HostRange, host_parts
from flux_trio.formats.idset import Idset

_DEPTH_MAX: Final = 64  # nested operators; parsing recurses, and real constraints nest far less
_T = TypeVar("_T")


class Targets(Protocol):
    """The execution targets that a constraint chooses from."""

    @property
    def ranks(self) -> Idset: ...

    def ranks_with_property(self, name: str) -> Idset:
        """Return the ranks with the property; an empty set if no rank has it."""

    def ranks_of_hosts(self, hosts: Iterable[str | HostRange]) -> Idset:
        """Return the ranks of the hosts; unknown hosts are ignored."""


class Constraint(msgspec.Struct, frozen=True):
    """Decides which execution targets a job accepts; immutable, hashable, compared by value."""

    def select(self, targets: Targets) -> Idset:
        """Return the ranks of the matching targets; each operator costs a few set operations."""
        return targets.ranks & self._select(targets)

    def to_json(self) -> dict[str, object]:
        """Return the form of RFC 31: `{operator: [values]}`, or `{}`."""
        return self._to_json()

    def _select(self, targets: Targets) -> Idset:
        raise NotImplementedError

    def _to_json(self) -> dict[str, object]:
        raise NotImplementedError


def parse_constraint(obj: object, where: str = "") -> Constraint:
    """Parse decoded JSON; a FormatError's path begins with `where`."""
    try:
        return _parse(obj, _DEPTH_MAX)
    except FormatError as error:
        raise error.at(where) from None


def both(a: Constraint, b: Constraint) -> Constraint:
    """Return the conjunction of `a` and `b`, for example of a queue's and a job's constraint."""
    values = (*_conjuncts(a), *_conjuncts(b))
    if not values:
        return Anything()
    return values[0] if len(values) == 1 else And(values)


def _conjuncts(constraint: Constraint) -> tuple[Constraint, ...]:
    match constraint:
        case Anything() | Or(values=()):
            return ()
        case And(values=values):
            return values
        case _:
            return (constraint,)


@final
class Anything(Constraint, frozen=True):
    """`{}`: matches every target."""

    def _select(self, targets: Targets) -> Idset:
        return targets.ranks

    def _to_json(self) -> dict[str, object]:
        return {}


@final
class Properties(Constraint, frozen=True):
    """Matches targets that have every `name` in the list and lack every `^name`."""

    values: tuple[str, ...]

    def _select(self, targets: Targets) -> Idset:
        ranks = targets.ranks
        for value in self.values:
            if value.startswith("^"):
                ranks -= targets.ranks_with_property(value[1:])
            else:
                ranks &= targets.ranks_with_property(value)
        return ranks

    def _to_json(self) -> dict[str, object]:
        return {"properties": list(self.values)}


@final
class Hosts(Constraint, frozen=True):
    """Matches the targets on any of the hosts."""

    values: tuple[str, ...]
    """Hostlists (RFC 29)."""

    def _select(self, targets: Targets) -> Idset:
        return targets.ranks_of_hosts(part for value in self.values for part in host_parts(value))

    def _to_json(self) -> dict[str, object]:
        return {"hostlist": list(self.values)}


@final
class Ranks(Constraint, frozen=True):
    """Matches the targets with any of the ranks."""

    values: tuple[str, ...]
    """Idsets (RFC 22)."""

    def _select(self, targets: Targets) -> Idset:
        end, ranks = targets.ranks.bits.bit_length(), Idset()
        for value in self.values:
            ranks |= Idset.parse_below(value, end)
        return ranks

    def _to_json(self) -> dict[str, object]:
        return {"ranks": list(self.values)}


@final
class Not(Constraint, frozen=True):
    """Matches targets that the value does not match; without a value, none (31.constraints.10)."""

    value: Constraint | None

    def _select(self, targets: Targets) -> Idset:
        return targets.ranks - self.value.select(targets) if self.value else Idset()

    def _to_json(self) -> dict[str, object]:
        return {"not": [self.value.to_json()] if self.value else []}


@final
class And(Constraint, frozen=True):
    """Matches targets that all values match; every target if there are no values."""

    values: tuple[Constraint, ...]

    def _select(self, targets: Targets) -> Idset:
        ranks = targets.ranks
        for value in self.values:
            ranks &= value.select(targets)
        return ranks

    def _to_json(self) -> dict[str, object]:
        return {"and": [value.to_json() for value in self.values]}


@final
class Or(Constraint, frozen=True):
    """Matches targets that any value matches; every target without values (31.constraints.9)."""

    values: tuple[Constraint, ...]

    def _select(self, targets: Targets) -> Idset:
        if not self.values:
            return targets.ranks
        ranks = Idset()
        for value in self.values:
            ranks |= value.select(targets)
        return ranks

    def _to_json(self) -> dict[str, object]:
        return {"or": [value.to_json() for value in self.values]}


def _parse(obj: object, depth: int) -> Constraint:
    if not isinstance(obj, dict) or len(obj) > 1:
        raise FormatError('an object with one operator, such as {"properties": ["ssd"]}', obj)
    if not depth:
        raise FormatError(f"at most {_DEPTH_MAX} operators within each other", Words("more"))
    for operator, values in obj.items():
        read = _READERS.get(operator)
        if read is None:
            raise FormatError(f"one of the operators {', '.join(_READERS)}", operator)
        if not isinstance(values, list):
            raise FormatError("an array of values", values, operator)
        try:
            return read(values, depth - 1)
        except FormatError as error:
            raise error.at(operator) from None
    return Anything()


def _each(values: list[object], read: Callable[[object], _T]) -> list[_T]:
    """Return `read(value)` for each value; a FormatError's path gets the value's index."""
    results = []
    for index, value in enumerate(values):
        try:
            results.append(read(value))
        except FormatError as error:
            raise error.at(f"[{index}]") from None
    return results


def _read_properties(values: list[object], _depth: int) -> Constraint:
    return Properties(tuple(_each(values, _property)))


def _property(value: object) -> str:
    if not isinstance(value, str):
        raise FormatError("a property name", value)
    check_property_name(value.removeprefix("^"))
    return value


def _read_hostlist(values: list[object], _depth: int) -> Constraint:
    return Hosts(tuple(_each(values, _hostlist)))


def _hostlist(value: object) -> str:
    for _ in host_parts(value):
        pass  # it is read only to find errors
    return str(value)


def _read_ranks(values: list[object], _depth: int) -> Constraint:
    return Ranks(tuple(_each(values, _idset)))


def _idset(value: object) -> str:
    Idset.parse_below(value, 0)  # it is read only to find errors
    return str(value)


def _read_not(values: list[object], depth: int) -> Constraint:
    if len(values) > 1:
        raise FormatError('one value (several go into {"and": [...]})', Words(f"{len(values)}"))
    parsed = _each(values, lambda value: _parse(value, depth))
    return Not(parsed[0] if parsed else None)


def _read_and(values: list[object], depth: int) -> Constraint:
    return And(_operands(values, depth))


def _read_or(values: list[object], depth: int) -> Constraint:
    return Or(_operands(values, depth))


def _operands(values: list[object], depth: int) -> tuple[Constraint, ...]:
    return tuple(_each(values, lambda value: _parse(value, depth)))


_READERS: Final[dict[str, Callable[[list[object], int], Constraint]]] = {
    "properties": _read_properties,
    "hostlist": _read_hostlist,
    "ranks": _read_ranks,
    "not": _read_not,
    "and": _read_and,
    "or": _read_or,
}
