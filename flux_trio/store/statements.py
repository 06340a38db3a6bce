"""Statements over many rows, in few forms, so that SQLite's preparation is found in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def rows_prepared(rows: int) -> int:
    """`rows`, or a few more: 8, 10, 12, 14, 16, 20, 24 and so on."""
    step = 1 << max(0, rows.bit_length() - 3)
    return -(-rows // step) * step


def filled(values: Sequence[Any], count: int) -> list[Any]:
    """`values` and as many NULLs as make it `count`."""
    return [*values, *[None] * (count - len(values))]
