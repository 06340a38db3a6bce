"""A test can compare what a parser returns, also when the parser refuses what it has to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from flux_trio.formats import FormatError

_T = TypeVar("_T")


def value_or_error(read: Callable[[], _T]) -> _T | str:
    """Return what `read` returns, or the text of its FormatError: an assertion then fails on it."""
    try:
        return read()
    except FormatError as error:
        return f"FormatError: {error}"
