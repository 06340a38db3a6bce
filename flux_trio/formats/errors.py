"""The one error of this package: place, expected format, value received.

A nested parser knows only its own part of a document, so each level prefixes its place with
`FormatError.at`.
"""

from __future__ import annotations

import re
import reprlib
from typing import TypeVar

import msgspec

from flux_trio.formats.printable import printable

GOT_CHARS_MAX = 80  # enough to recognise a value, and fits on one line of a log
T = TypeVar("T")
_INT_BITS_MAX = 256  # print the size of longer integers: Python refuses to print very long ones


class Words(str):
    """A `got` that is already a description, printed without quotes."""

    __slots__ = ()


LESS_DEEP = "less deeply nested JSON"
"""What is expected in place of a value that Python cannot read, since it is nested too deeply."""

MISSING = Words("nothing")
OUT_OF_RANGE = Words("a value out of range")
"""What msgspec says of a value that it does not show."""


class FormatError(ValueError):
    """A value that does not follow its format.

    `where` is a path such as `execution.R_lite[0].rank` ("" for the whole value), `expected`
    describes the format, and `got` is the received value, shortened, or `Words`, or `MISSING`.
    """

    def __init__(self, expected: str, got: object, where: str = "") -> None:
        self.expected = expected
        self.got = _show(got)
        self.where = where
        super().__init__(expected, self.got, where)

    @classmethod
    def of_msgspec(cls, error: msgspec.MsgspecError) -> FormatError:
        """Convert an error of msgspec."""
        text, _, where = str(error).partition(" - at `$")
        where = where.rstrip("`").removeprefix(".").replace("[...]", "[]")
        if match := _MSGSPEC_MISSING.fullmatch(text):
            return cls(f"the key {match[1]}", MISSING, where)
        if match := _MSGSPEC_UNKNOWN.fullmatch(text):
            return cls("only the keys of the format", Words(f"the key {match[1]}"), where)
        if match := _MSGSPEC_TYPE.fullmatch(text):
            got = Words(match[2].strip("`")) if match[2] else OUT_OF_RANGE
            return cls(match[1].replace("`", ""), got, where)
        return cls("well-formed data", Words(text), where)

    def at(self, prefix: str) -> FormatError:
        """Return the same error with its path prefixed by `prefix`."""
        dot = "." if prefix and self.where and not self.where.startswith("[") else ""
        return FormatError(self.expected, self.got, f"{prefix}{dot}{self.where}")

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}expected {self.expected}, got {self.got}"


def converted(value: object, shape: type[T], where: str = "") -> T:
    """Return decoded JSON as a `shape` of msgspec. FormatError with the place below `where`."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise FormatError.of_msgspec(error).at(where) from None


_MSGSPEC_MISSING = re.compile(r"Object missing required field `(.*)`")
_MSGSPEC_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MSGSPEC_TYPE = re.compile(r"Expected (.+?)(?:, got (.+))?")


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        bits = x.bit_length()
        return f"an integer of {bits} bits" if bits > _INT_BITS_MAX else super().repr_int(x, level)


_short = _Short()


def _show(value: object) -> Words:
    if isinstance(value, Words):
        text: str = value
    elif isinstance(value, str):
        text = f'"{printable(value[:GOT_CHARS_MAX])}"'
    else:
        text = _short.repr(value)
    return Words(text if len(text) <= GOT_CHARS_MAX else text[: GOT_CHARS_MAX - 3] + "...")
