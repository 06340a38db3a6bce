"""Statements with many rows, in few sizes, so that SQLite finds them prepared in its cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def rows_prepared(rows: int) -> int:
    """Return `rows` rounded up to 8, 10, 12, 14, 16, 20, 24 and so on."""
    step = 1 << max(0, rows.bit_length() - 3)
    return -(-rows // step) * step


def filled(values: Sequence[Any], count: int) -> list[Any]:
    """Return `values`, filled up with NULLs to `count`."""
    return [*values, *[None] * (count - len(values))]
