"""The fields of decoded JSON: each getter returns a value of the asked type or says what came.

For the documents that msgspec's own conversion serves badly, because its errors do not say which
element of a list is meant: R (RFC 20) and jobspec (RFC 14, 25). JSON's `true` is never a number
here.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import msgspec

from flux_trio.formats.errors import MISSING, FormatError, Words

Object = dict[str, object]

_STR = {str}
_decode = msgspec.json.Decoder().decode


def document(value: object) -> Object:
    """`value` if it is a JSON object; bytes are taken as the JSON text of one.

    A string is refused even if it spells an object: in a message it would be encoded twice.
    """
    if isinstance(value, bytes):
        try:
            value = _decode(value)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise FormatError("a JSON object", Words(f"bytes that are not JSON: {error}")) from None
    return as_object(value)


def as_object(value: object, where: str = "") -> Object:
    """`value` if it is an object with string keys."""
    if not isinstance(value, dict) or not set(map(type, value)) <= _STR:
        raise FormatError("an object", value, where)
    return value


def get_object(parent: Object, key: str) -> Object:
    return as_object(parent.get(key, MISSING), key)


def get_list(parent: Object, key: str) -> list[object]:
    value = parent.get(key, MISSING)
    if type(value) is not list:
        raise FormatError("an array", value, key)
    return value


def get_str(parent: Object, key: str) -> str:
    value = parent.get(key, MISSING)
    if type(value) is not str:
        raise FormatError("a string", value, key)
    return value


def get_count(parent: Object, key: str) -> int:
    """The integer at `key`, at least 1."""
    value = parent.get(key, MISSING)
    if type(value) is not int or value < 1:
        raise FormatError("an integer of at least 1", value, key)
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
    if type(value) is int and 0 <= value <= _EXACT_MAX:
        return float(value)
    raise FormatError("a number of seconds, at least 0", value, key)


_EXACT_MAX = 1 << 53  # larger integers are no times, and a float would not hold them exactly


def only_keys(value: Object, allowed: Iterable[str]) -> None:
    """FormatError that names the first key of `value` not in `allowed`."""
    for key in value:
        if key not in allowed:
            raise FormatError(f"only the keys {', '.join(allowed)}", Words(f'the key "{key}"'))
