"""The constraint of a list request: which jobs it is about, as a tree of operators. Pure data.

Each node is an object with one key, an operator, and its values: `and`, `or`, `not` have nodes; the
others compare one attribute of a job with any of their values. Without values each is true, as RFC
31 has it. The operators and texts are those of flux-core's job-list.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from flux_trio.editions.job_list import Row
from flux_trio.formats import FormatError, Hostlist, Idset
from flux_trio.messages import USERID_UNKNOWN, Errno, FluxError
from flux_trio.protocols import ACTIVE, PENDING, RUNNING, JobResult, JobState

NODES_MAX: Final = 256
"""Operators and values in one constraint: each job that is looked at is compared with them."""

ANY_STATE: Final = ACTIVE | JobState.INACTIVE
ANY_USER: Final = -1

_STATES: Final = {
    **{state.name.lower(): int(state) for state in JobState},
    "pending": int(PENDING),
    "running": int(RUNNING),
    "active": int(ACTIVE),
}
_RESULTS: Final = {result.name.lower(): int(result) for result in JobResult}
_TIMES: Final = (
    "t_submit", "t_depend", "t_priority", "t_sched", "t_run", "t_cleanup", "t_inactive",
)  # fmt: skip
_COMPARISONS: Final = (  # those of two characters first
    (">=", operator.ge),
    ("<=", operator.le),
    (">", operator.gt),
    ("<", operator.lt),
)


class JobConstraint(msgspec.Struct, frozen=True):
    """A node: an operator with its `parts`, or with the `values` that it compares with."""

    operator: str
    parts: tuple[JobConstraint, ...] = ()
    values: tuple[Any, ...] = ()

    def matches(self, row: Row) -> bool:
        """Return whether a job is wanted, by its row."""
        match self.operator:
            case "and":
                return all(part.matches(row) for part in self.parts)
            case "or":
                return not self.parts or any(part.matches(row) for part in self.parts)
            case "not":
                return not all(part.matches(row) for part in self.parts)
            case name:
                return not self.values or _COMPARED[name](row, self.values)

    @property
    def states(self) -> int:
        """Return a mask of the states that a wanted job can have; a list looks at no other job."""
        match self.operator:
            case "and":
                mask = int(ANY_STATE)
                for part in self.parts:
                    mask &= part.states
                return mask
            case "or" if self.parts:
                mask = 0
                for part in self.parts:
                    mask |= part.states
                return mask
            case "states" if self.values:
                return int(self.values[0])
            case "results" if self.values:
                return int(JobState.INACTIVE)
            case _:
                return int(ANY_STATE)


@lru_cache(maxsize=64)  # a list asks for each of its jobs
def parse_constraint(text: str) -> JobConstraint:
    """Return a constraint from its JSON. Raises FluxError(EPROTO), with flux-core's text."""
    left = [NODES_MAX]
    try:
        return _parsed(msgspec.json.decode(text), left)
    except FormatError as error:
        text = f"invalid payload: constraint object invalid: {error}"
        raise FluxError(Errno.EPROTO, text) from None


def _parsed(constraint: object, left: list[int]) -> JobConstraint:
    _count(left, 1)
    if not isinstance(constraint, dict):
        raise _Invalid("constraint must be JSON object")
    if not constraint:
        return JobConstraint("and")
    if len(constraint) > 1:
        raise _Invalid("constraint must only contain 1 element")
    ((name, values),) = constraint.items()
    if not isinstance(values, list):
        raise _Invalid(f"operator {name} values not an array")
    if name in ("and", "or", "not"):
        return JobConstraint(name, parts=tuple(_parsed(each, left) for each in values))
    if name not in _COMPARED:
        raise _Invalid(f"unknown constraint operator: {name}")
    _count(left, len(values))
    return JobConstraint(name, values=_values(name, values))


def _count(left: list[int], number: int) -> None:
    left[0] -= number
    if left[0] < 0:
        raise _Invalid(f"expected at most {NODES_MAX} operators and values")


class _Invalid(FormatError):
    """A constraint without meaning; the text is flux-core's."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "")
        self.text = text

    def __str__(self) -> str:
        return self.text


def _values(name: str, values: list[Any]) -> tuple[Any, ...]:
    match name:
        case "userid":
            if not all(type(each) is int for each in values):
                raise _Invalid("userid value must be an integer")
            return tuple(values)
        case "states":
            return _mask("states", values, _STATES, int(ANY_STATE | JobState.NEW))
        case "results":
            return _mask("results", values, _RESULTS, sum(_RESULTS.values()))
    if not all(isinstance(each, str) for each in values):
        what = "host" if name == "hostlist" else name
        raise _Invalid(f"{what} value must be a string")
    if name in _TIMES:
        if not values:
            raise _Invalid("timestamp value not specified")
        return _comparison(values[0])
    if name == "ranks":
        return tuple(_parsed_ranks(each) for each in values)
    if name == "hostlist":
        return tuple(frozenset(_parsed_hosts(each)) for each in values)
    return tuple(values)


def _mask(name: str, values: list[Any], names: dict[str, int], most: int) -> tuple[int, ...]:
    """Return one mask for all values; () without a value."""
    mask = 0
    for each in values:
        if isinstance(each, str):
            if each.lower() not in names:
                raise _Invalid(f"invalid {name} value '{each}' specified")
            mask |= names[each.lower()]
        elif type(each) is int:
            if each & ~most:
                raise _Invalid(f"invalid {name} value '{each:X}h' specified")
            mask |= each
        else:
            raise _Invalid(f"{name} value invalid type")
    return (mask,) if values else ()


def _comparison(text: str) -> tuple[str, float]:
    for mark, _ in _COMPARISONS:
        if text.startswith(mark):
            try:
                limit = float(text.removeprefix(mark))
            except ValueError:
                raise _Invalid("Invalid timestamp value specified") from None
            if not limit >= 0:
                raise _Invalid("timestamp value must be >= 0.0")
            return mark, limit
    raise _Invalid("timestamp comparison operator not specified")


def _parsed_ranks(text: str) -> Idset:
    try:
        return Idset.parse(text)
    except FormatError as error:
        raise _Invalid(f"ranks value '{text}': {error}") from None


def _parsed_hosts(text: str) -> Hostlist:
    try:
        return Hostlist.parse(text, own_widths=True)
    except FormatError:
        raise _Invalid("host value not in valid Hostlist format") from None


def _compare_user(row: Row, values: tuple[Any, ...]) -> bool:
    return row["userid"] in values or ANY_USER in values or USERID_UNKNOWN in values


def _compare_state(row: Row, values: tuple[Any, ...]) -> bool:
    return bool(row["state"] & values[0])


def _compare_result(row: Row, values: tuple[Any, ...]) -> bool:
    return bool(row.get("result", 0) & values[0])


def _compare_hosts(row: Row, values: tuple[Any, ...]) -> bool:
    nodelist = row.get("nodelist")
    if not nodelist:
        return False
    hosts = set(Hostlist.parse(nodelist, own_widths=True))
    return any(not hosts.isdisjoint(each) for each in values)


def _compare_ranks(row: Row, values: tuple[Any, ...]) -> bool:
    ranks = row.get("ranks")
    return ranks is not None and any(Idset.parse(ranks) & each for each in values)


def _compare_text(name: str) -> Callable[[Row, tuple[Any, ...]], bool]:
    def compare(row: Row, values: tuple[Any, ...]) -> bool:
        return row.get(name) in values

    return compare


def _compare_time(name: str) -> Callable[[Row, tuple[Any, ...]], bool]:
    def compare(row: Row, values: tuple[Any, ...]) -> bool:
        mark, limit = values
        time = row.get(name)
        return time is not None and bool(dict(_COMPARISONS)[mark](time, limit))

    return compare


_COMPARED: Final[dict[str, Callable[[Row, tuple[Any, ...]], bool]]] = {
    "userid": _compare_user,
    "states": _compare_state,
    "results": _compare_result,
    "hostlist": _compare_hosts,
    "ranks": _compare_ranks,
    **{name: _compare_text(name) for name in ("name", "queue")},
    **{name: _compare_time(name) for name in _TIMES},
}
