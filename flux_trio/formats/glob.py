"""Globs of topics and names, as in fnmatch(3): `*`, `?`, `[abc]`, `[a-z]`, `[!abc]`.

Anybody may subscribe with a glob, so a malicious pattern must not make matching slow: `fnmatch`
translates each `*` to an atomic group, which is never tried a second time, and a pattern is short.
Not supported: `**`, and a backslash that escapes a special character.
"""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache
from typing import Final, final

from flux_trio.formats.errors import FormatError

GLOB_CHARS_MAX: Final = 255  # as long as the longest topic

_WILDCARD: Final = re.compile(r"[*?\[]")


@final
class Glob:
    """A compiled pattern."""

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str) -> None:
        """Compile `pattern`; FormatError if it has more than GLOB_CHARS_MAX characters."""
        if len(pattern) > GLOB_CHARS_MAX:
            raise FormatError(f"a glob of at most {GLOB_CHARS_MAX} characters", len(pattern))
        self.pattern = pattern
        self._compiled = re.compile(translate(pattern))

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches all of `text`."""
        return self._compiled.match(text) is not None


def is_glob(pattern: str) -> bool:
    """Return whether `pattern` contains a wildcard."""
    return _WILDCARD.search(pattern) is not None


def literal_head(pattern: str) -> str:
    """Return the pattern up to its first wildcard; every matching text begins with it."""
    return _WILDCARD.split(pattern, maxsplit=1)[0]


@lru_cache(maxsize=256)
def _glob_of(pattern: str) -> Glob:
    return Glob(pattern)


def glob_matches(pattern: str, text: str) -> bool:
    """Return whether `text` matches, using a cache of compiled patterns; FormatError as `Glob`."""
    return _glob_of(pattern).matches(text)
