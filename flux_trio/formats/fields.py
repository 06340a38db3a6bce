"""Typed access to decoded JSON: each getter returns the value or raises a FormatError.

R (RFC 20) and jobspec (RFC 14, 25) use these getters in place of msgspec's conversion, because an
error of msgspec does not say which element of a list is wrong. JSON's `true` is never a number
here.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

import msgspec

from flux_trio.formats.errors import MISSING, FormatError, Words

Object = dict[str, object]

_STR = {str}
_decode = msgspec.json.Decoder().decode


def document(value: object) -> Object:
    """Return `value` if it is a JSON object; decode it first if it is bytes.

    A string is refused even if it contains an object: in a message it would be encoded twice.
    """
    if isinstance(value, bytes):
        try:
            value = _decode(value)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise FormatError("a JSON object", Words(f"bytes that are not JSON: {error}")) from None
    return as_object(value)


def as_object(value: object, where: str = "") -> Object:
    if not isinstance(value, dict) or not set(map(type, value)) <= _STR:
        raise FormatError("an object", value, where)
    return value


def get_object(parent: Object, key: str) -> Object:
    return as_object(parent.get(key, MISSING), key)


def get_list(parent: Object, key: str) -> list[object]:
    value = parent.get(key, MISSING)
    if not isinstance(value, list):
        raise FormatError("an array", value, key)
    return value


def get_str(parent: Object, key: str) -> str:
    value = parent.get(key, MISSING)
    if type(value) is not str:
        raise FormatError("a string", value, key)
    return value


def get_count(parent: Object, key: str) -> int:
    """The integer at `key`, from 1 to COUNT_MAX."""
    value = parent.get(key, MISSING)
    if type(value) is not int or value < 1:
        raise FormatError("an integer of at least 1", value, key)
    if value > COUNT_MAX:
        raise FormatError(f"an integer of at most {COUNT_MAX}", value, key)
    return value


def get_bool(parent: Object, key: str) -> bool:
    value = parent.get(key, MISSING)
    if type(value) is not bool:
        raise FormatError("true or false", value, key)
    return value


def get_seconds(parent: Object, key: str) -> float:
    """The finite number at `key`, at least 0."""
    value = parent.get(key, MISSING)
    if type(value) is float and 0.0 <= value < inf:
        return value
    if type(value) is int and 0 <= value <= EXACT_MAX:
        return float(value)
    raise FormatError("a number of seconds, at least 0", value, key)


COUNT_MAX: Final = (1 << 31) - 1  # more than any machine has; Python prints no number of any length

EXACT_MAX: Final = 1 << 53  # a float does not hold larger integers exactly


def only_keys(value: Object, allowed: Iterable[str]) -> None:
    """Raise a FormatError that names the first key of `value` outside `allowed`."""
    for key in value:
        if key not in allowed:
            raise FormatError(f"only the keys {', '.join(allowed)}", Words(f'the key "{key}"'))
