"""RFC 23 Flux Standard Duration: `30`, `1.2h`, `100ms`, `inf`, in seconds.

The number has the syntax of C99 strtod, including hexadecimal (`0x1d` is 29 seconds, not a day).
Leading blanks, which strtod skips, are refused.
"""

from __future__ import annotations

import math
import re

from flux_trio.formats.errors import FormatError

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3}
_DIGITS = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_DECIMAL = rf"(?P<decimal>[+-]?(?:{_DIGITS})(?:[eE][+-]?[0-9]+)?)"
_HEX_DIGITS = _DIGITS.replace("0-9", "0-9a-fA-F")
_HEX = rf"(?P<hex>[+-]?0[xX](?:{_HEX_DIGITS})(?:[pP][+-]?[0-9]+)?)"
_DURATION = re.compile(rf"(?:{_HEX}|{_DECIMAL})(?P<unit>ms|[smhd])?")
_INFINITY = re.compile(r"\+?inf(?:inity)?", re.IGNORECASE)
_EXPECTED = 'a duration such as "30", "1.5h" or "inf" (units: ms, s, m, h, d)'
_FINITE = "a duration that a double can hold, or inf"


def parse_duration(value: str | float) -> float:
    """Return seconds, from text or a number of seconds; `inf` means no end; FormatError."""
    if isinstance(value, str):
        seconds = _parse(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = _float(value)
    else:
        raise FormatError(_EXPECTED, value)
    if not seconds >= 0:  # NaN fails this comparison too
        raise FormatError("a duration from 0 to infinity", value)
    return abs(seconds)  # turns -0 into 0


def format_duration(seconds: float) -> str:
    """Return the shortest text that parses back to exactly `seconds`; on a tie, the larger unit."""
    if parse_duration(seconds) == math.inf:
        return "infinity"
    if seconds == 0:
        return "0s"
    spellings = [f"{seconds / scale!r}".removesuffix(".0") + unit for unit, scale in _UNITS.items()]
    return min((text for text in spellings if _is_exactly(text, seconds)), key=len)


def _is_exactly(text: str, seconds: float) -> bool:
    try:
        return _parse(text) == seconds
    except FormatError:  # the largest doubles overflow when written in milliseconds
        return False


def _parse(text: str) -> float:
    if _INFINITY.fullmatch(text):
        return math.inf
    match = _DURATION.fullmatch(text)
    if match is None:
        raise FormatError(_EXPECTED, text)
    number = match["decimal"]
    try:
        seconds = float(number) if number else float.fromhex(match["hex"])
    except OverflowError:
        seconds = math.inf
    seconds *= _UNITS[match["unit"] or "s"]
    if math.isinf(seconds):
        raise FormatError(_FINITE, text)
    return seconds


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        raise FormatError(_FINITE, number) from None
