"""What a payload may hold on the wire: JSON's values, with numbers that survive any reader.

RFC 3 (Payload Conventions) wants objects; this adds the bounds that keep a peer from asking
for more memory than it sent. It says nothing about the meaning of a payload.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

INT_MIN: Final = -(2**63)  # a signed 64-bit integer's least
INT_MAX: Final = 2**64 - 1  # an unsigned one's most: job ids, sizes
DEPTH_MAX: Final = 64  # the deepest real payload, a nested jobspec, is below 20
STEP_CHARS_MAX: Final = 40  # how much of a key an error text repeats

_PLAIN: Final = frozenset({str, bool, type(None)})  # fit for the wire whatever they hold


class UnfitError(Exception):
    """Something that may not travel: where it is, what was expected and what it is."""


class _UnfitValueError(Exception):
    """The same within a payload; the path to it is filled in on the way out."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path: list[str | int] = []  # keys and indices, the innermost first

    def where(self) -> str:
        return "payload" + "".join(
            f"[{step}]" if isinstance(step, int) else f".{step[:STEP_CHARS_MAX]}"
            for step in reversed(self.path)
        )


def check_object(payload: Any) -> None:
    """Raise UnfitError, with the path of the value, unless `payload` is a map that may travel."""
    if not isinstance(payload, dict):
        raise UnfitError(f"payload: expected a map, got {kind_of(payload)}")
    try:
        _check(payload, DEPTH_MAX)
    except _UnfitValueError as unfit:
        raise UnfitError(f"{unfit.where()}: {unfit}") from None


def _check(value: Any, depth: int) -> None:
    steps: Iterable[tuple[str | int, Any]]
    if isinstance(value, dict):
        _check_keys(value)
        steps = value.items()
    elif isinstance(value, (list, tuple)):
        steps = enumerate(value)
    else:
        return _check_scalar(value)
    if depth == 0:
        raise _UnfitValueError(f"expected at most {DEPTH_MAX} levels of maps and arrays, got more")
    for step, inner in steps:
        if type(inner) not in _PLAIN:
            try:
                _check(inner, depth - 1)
            except _UnfitValueError as unfit:
                unfit.path.append(step)
                raise
    return None


def _check_keys(value: dict[Any, Any]) -> None:
    for key in value:
        if not isinstance(key, str):
            raise _UnfitValueError(f"expected a map's keys to be text, got {kind_of(key)}")


def _check_scalar(value: Any) -> None:
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise _UnfitValueError("expected an integer of 64 bits, got a larger one")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _UnfitValueError(f"expected a finite number, got {value}")
    elif not isinstance(value, str) and value is not None:
        raise _UnfitValueError(
            f"expected a map, array, text, number, boolean or null, got {kind_of(value)}"
        )


def kind_of(value: object) -> str:
    """What a decoded value is, in the words of CBOR where it has one."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return f"the integer {value}" if abs(value) <= INT_MAX else "a large integer"
        case str():
            return "text"
        case bytes():
            return "a byte string"
        case dict():
            return "a map"
        case list() | tuple():
            return f"an array of {len(value)}"
        case _:
            return f"a value of type {type(value).__name__}"
