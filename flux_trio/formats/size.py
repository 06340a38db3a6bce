"""Sizes in bytes, in the syntax of flux-core's shell options: `512`, `10K`, `1.5G` (1K = 1024)."""

from __future__ import annotations

import math
import re

from flux_trio.formats.errors import FormatError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?P<unit>[kKMGT]?)")
_EXPECTED = 'a number of bytes such as 512, "10K" or "1.5G"'


def format_size(nbytes: int) -> str:
    """Return bytes in the largest unit of which they are a multiple: `1K`, `1536`, `10M`."""
    units = [unit for unit, size in _UNITS.items() if not nbytes % size]
    return f"{nbytes // _UNITS[units[-1]]}{units[-1]}" if nbytes else "0"


def parse_size(value: str | float) -> int:
    """Return bytes, from text or a number of bytes, rounded down; FormatError."""
    if isinstance(value, str):
        if match := _SIZE.fullmatch(value):
            return int(float(match["number"]) * _UNITS[match["unit"].upper()])
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf:
        return int(value)
    raise FormatError(_EXPECTED, value)
