"""Payloads: the values that are allowed, and how a payload becomes a typed value.

Allowed are JSON's values, with numbers that every reader can represent.

RFC 3 (Payload Conventions) requires objects. This module adds bounds, so that a peer cannot make
the receiver use far more memory than the peer has sent. A payload is converted once, at the edge,
or refused with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from flux_trio.formats import is_utf8, printable
from flux_trio.messages.errors import Errno, FluxError
from flux_trio.messages.types import Event, Message, Request, Response

INT_MIN: Final = -(2**63)  # the minimum of a signed 64-bit integer
INT_MAX: Final = 2**64 - 1  # the maximum of an unsigned one: job ids, sizes
DEPTH_MAX: Final = 64  # the deepest real payload, a nested jobspec, is below 20
STEP_CHARS_MAX: Final = 40  # an error text repeats at most this much of a key

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_PLAIN: Final = frozenset({str, bool, type(None)})  # allowed with any value


class UnfitError(Exception):
    """A value that must not travel; the text says where, what was expected and what came."""


class _UnfitValueError(Exception):
    """The same within a payload; each level adds its step to the path as the error passes."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.path: list[str | int] = []  # keys and indices, innermost first

    def where(self) -> str:
        return "payload" + "".join(
            f"[{step}]" if isinstance(step, int) else f".{step[:STEP_CHARS_MAX]}"
            for step in reversed(self.path)
        )


def check_object(payload: Any) -> None:
    """Raise UnfitError with the value's path unless `payload` is a map of allowed values."""
    if not isinstance(payload, dict):
        raise UnfitError(f"payload: expected a map, got {kind_of(payload)}")
    try:
        _check(payload, DEPTH_MAX)
    except _UnfitValueError as unfit:
        raise UnfitError(f"{unfit.where()}: {unfit}") from None


def check_texts(value: Any, where: str) -> None:
    """Raise UnfitError with the path of the first text in `value` that is not UTF-8."""
    if isinstance(value, str) and not is_utf8(value):
        raise UnfitError(f"{where}: expected text in UTF-8, got '{printable(value)}'")
    if isinstance(value, dict):
        for key, inner in value.items():
            check_texts(key, f"{where}: key")
            check_texts(inner, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            check_texts(inner, f"{where}[{index}]")


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
        kind = type(inner)
        if kind is int and INT_MIN <= inner <= INT_MAX:  # here, since most are numbers
            continue
        if kind is float and math.isfinite(inner):
            continue
        if kind not in _PLAIN:
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
    """Describe a decoded value in CBOR's words, for an error text."""
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


def payload_bytes(message: Message | None) -> int:
    """Return the size of a payload as JSON, its encoding on Flux's own wire.

    This is the cheapest measure, since C code takes it. In memory a payload is several times as
    large.
    """
    payload = getattr(message, "payload", None)
    try:
        return 0 if payload is None else len(_encode(payload))
    except (TypeError, ValueError, OverflowError, RecursionError):  # from a module in this process
        return len(repr(payload))


def expect_payload(message: Request | Response | Event, shape: type[T]) -> T:
    """Convert the payload to `shape`.

    Raises FluxError(EPROTO) that names the topic, the key, what was expected and what came.
    """
    payload = {} if message.payload is None else message.payload
    if isinstance(payload, str) and payload.startswith("{"):  # it stayed text: see `native`
        bounds = f"at most {DEPTH_MAX} levels, integers of 64 bits"
        text = f"{message.topic}: payload: expected a JSON object ({bounds}), got {payload[:80]!r}"
        raise FluxError(Errno.EPROTO, text)
    try:
        return msgspec.convert(payload, shape)
    except msgspec.ValidationError as error:
        raise FluxError(Errno.EPROTO, f"{message.topic}: payload: {error}") from None
    except UnicodeEncodeError:  # bytes that are no UTF-8 are escaped: see `native`
        text = f"{message.topic}: payload: expected an object, got bytes that are not UTF-8"
        raise FluxError(Errno.EPROTO, text) from None
