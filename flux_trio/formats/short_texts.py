"""Caches of what texts say, which no text can fill with much."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

SHORT_MAX: Final = 1 << 14
"""Characters or bytes of the longest text that a cache keeps."""

_Text = TypeVar("_Text", str, bytes)
_Read = TypeVar("_Read")


def cached_for_short(read: Callable[[_Text], _Read], maxsize: int) -> Callable[[_Text], _Read]:
    """Return `read`, with a cache of the results for the last `maxsize` short texts.

    A cache counts its texts, and not their sizes. What a text says may take twenty times the memory
    of the text. So long texts, which are rare, are read each time.
    """
    cached = lru_cache(maxsize=maxsize)(read)

    def call(text: _Text) -> _Read:
        return cached(text) if len(text) <= SHORT_MAX else read(text)

    return call
