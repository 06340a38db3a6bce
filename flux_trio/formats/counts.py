"""Resource counts of a jobspec (RFC 14, count; RFC 45), reduced to their smallest value.

The maximum of a range and the values between are checked, then ignored.
"""

from __future__ import annotations

import re

from flux_trio.formats.errors import MISSING, FormatError
from flux_trio.formats.fields import Object, as_object, get_count, get_str, only_keys
from flux_trio.formats.idset import Idset

_RANGE = re.compile(  # RFC 45; nine digits exceed the resources of any machine
    r"(\[)?(?P<min>[1-9]\d{0,8})(?:\+|-(?P<max>[1-9]\d{0,8}))"
    r"(?::(?P<operand>[1-9]\d{0,8})(?::(?P<operator>[+*^]))?)?(?(1)\])",
    re.ASCII,
)


def least_count(vertex: Object, key: str) -> int:
    """Return the smallest acceptable count: of an integer, `{"min": 3}`, "4,9,16" or "3-30:2:*"."""
    match vertex.get(key):
        case str(text):
            return _least_of_text(text, key)
        case dict():
            try:
                return _least_of_range(as_object(vertex[key]))
            except FormatError as error:
                raise error.at(key) from None
        case _:
            return get_count(vertex, key)


def _least_of_text(text: str, key: str) -> int:
    range_ = _RANGE.fullmatch(text)
    if range_ is None:
        try:
            ids = Idset.parse(text)
        except FormatError:
            raise FormatError("an idset or a range such as 3-30:2:*", text, key) from None
        if not ids or 0 in ids:
            raise FormatError("counts of at least 1", text, key)
        return ids.first()
    fields: Object = {"min": int(range_["min"])}
    if range_["max"]:
        fields["max"] = int(range_["max"])
    if range_["operand"]:
        fields["operand"] = int(range_["operand"])
        fields["operator"] = range_["operator"] or "+"
    try:
        return _least_of_range(fields)
    except FormatError as error:
        raise error.at(key) from None


def _least_of_range(range_: Object) -> int:
    only_keys(range_, ("min", "max", "operator", "operand"))
    least = get_count(range_, "min")
    if "max" in range_ and get_count(range_, "max") < least:
        raise FormatError(f"an integer of at least min, {least}", range_["max"], "max")
    if ("operator" in range_) != ("operand" in range_):
        missing = "operand" if "operator" in range_ else "operator"
        raise FormatError("operator and operand together", MISSING, missing)
    if "operator" in range_:
        operator, operand = get_str(range_, "operator"), get_count(range_, "operand")
        if operator not in ("+", "*", "^"):
            raise FormatError("one of + * ^", operator, "operator")
        if operator != "+" and operand < 2:
            raise FormatError(f"an integer of at least 2 with {operator}", operand, "operand")
        if operator == "^" and least < 2:
            raise FormatError("an integer of at least 2 with ^", least, "min")
    return least
