"""Constraints (RFC 31): which of some targets match. Read by hand, as jobspecs are.

An empty hostlist and an empty set of ranks have no meaning in the RFC: nothing is said of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from flux_trio.formats import FormatError, Hostlist, Idset
from flux_trio.judge.checks.shapes import idset_of

DEPTH_MAX: Final = 64
"""How deeply operators may be nested to be read."""


class Targets(NamedTuple):
    """Execution targets, with what is known of their hosts and properties."""

    ranks: Idset
    hosts: Mapping[int, str]
    """The host of each target; empty if the hosts are not known."""
    properties: Mapping[str, Idset] | None
    """By property: the targets that have it; None if that is not known."""


Read: TypeAlias = Callable[[list[Any], Targets, int], "Idset | None"]


def matching(constraint: Any, targets: Targets, depth: int = DEPTH_MAX) -> Idset | None:
    """Return the targets that match a constraint.

    None if that cannot be told: the constraint has a wrong form or nests operators deeper than
    `depth`, or the hosts or properties that it asks for are not known of the targets.
    """
    if constraint == {}:
        return targets.ranks
    if not isinstance(constraint, dict) or len(constraint) != 1 or not depth:
        return None
    ((operator, values),) = constraint.items()
    read = _OPERATORS.get(operator)
    return read(values, targets, depth - 1) if read and isinstance(values, list) else None


def failing(constraint: Any, targets: Targets) -> Iterator[tuple[str, Any, Idset]]:
    """Yield the parts of a constraint that some targets do not match: operator, values, and the
    targets that match.

    Of an `and`, what fails in it is yielded as well. Properties that a target must not have are of
    the operator "^".
    """
    matched = matching(constraint, targets)
    if matched is None or matched == targets.ranks:
        return
    ((operator, values),) = constraint.items()
    if operator == "properties" and not targets.ranks <= _without(values, targets):
        yield "^", values, matched
    else:
        yield operator, values, matched
    for value in values if operator == "and" else ():
        yield from failing(value, targets)


def operators(constraint: Any, depth: int = DEPTH_MAX) -> set[str]:
    """Return the operators that all targets of a job have to match, named as `failing` names
    them.
    """
    found: set[str] = set()
    for operator, values in constraint.items() if isinstance(constraint, dict) and depth else ():
        found.add(operator)
        for value in values if isinstance(values, list) else ():
            if operator == "and":
                found |= operators(value, depth - 1)
            elif operator == "properties" and str(value).startswith("^"):
                found.add("^")
    return found


def _properties(values: list[Any], targets: Targets, _depth: int) -> Idset | None:
    known, matched = targets.properties, _without(values, targets)
    if known is None or not all(isinstance(each, str) for each in values):
        return None
    for name in values:
        if not name.startswith("^"):
            matched &= known.get(name, Idset())
    return matched


def _without(values: list[Any], targets: Targets) -> Idset:
    """Return the targets that have none of the properties that they must not have."""
    left = targets.ranks
    for name in values:
        if isinstance(name, str) and name.startswith("^"):
            left -= (targets.properties or {}).get(name[1:], Idset())
    return left


def _hostlist(values: list[Any], targets: Targets, _depth: int) -> Idset | None:
    hosts: set[str] = set()
    for value in values:
        try:
            hosts.update(Hostlist.parse(value))
        except FormatError:
            return None
    if not values or len(targets.hosts) < len(targets.ranks):
        return None
    return Idset.of([rank for rank in targets.ranks if targets.hosts.get(rank) in hosts])


def _ranks(values: list[Any], targets: Targets, _depth: int) -> Idset | None:
    sets = [idset_of(value) for value in values]
    if not sets:
        return None
    matched = Idset()
    for each in sets:
        if each is None:
            return None
        matched |= each
    return matched & targets.ranks


def _not(values: list[Any], targets: Targets, depth: int) -> Idset | None:
    if not values:
        return Idset()
    matched = matching(values[0], targets, depth) if len(values) == 1 else None
    return None if matched is None else targets.ranks - matched


def _and(values: list[Any], targets: Targets, depth: int) -> Idset | None:
    left = targets.ranks
    for value in values:
        matched = matching(value, targets, depth)
        if matched is None:
            return None
        left &= matched
    return left


def _or(values: list[Any], targets: Targets, depth: int) -> Idset | None:
    found = Idset() if values else targets.ranks
    for value in values:
        matched = matching(value, targets, depth)
        if matched is None:
            return None
        found |= matched
    return found


_OPERATORS: Final[dict[str, Read]] = {
    "properties": _properties,
    "hostlist": _hostlist,
    "ranks": _ranks,
    "not": _not,
    "and": _and,
    "or": _or,
}
