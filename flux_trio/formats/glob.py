"""Globs of topics and names, as in fnmatch(3): `*`, `?`, `[abc]`, `[a-z]`, `[!abc]`.

Anybody may subscribe with a glob, so a malicious pattern must not make matching slow. The pattern
is compiled to a state machine whose states are the bits of one integer. Matching does one step for
each character of the text and never backtracks. Not supported: `**`, and a backslash that escapes a
special character.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple, final

from flux_trio.formats.errors import FormatError

GLOB_CHARS_MAX: Final = 255  # as long as the longest topic

_WILDCARD: Final = re.compile(r"[*?\[]")


class _Class(NamedTuple):
    """One `[...]` of a pattern: inclusive ranges of characters, or all characters outside them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool

    def accepts(self, char: str) -> bool:
        return self.negated != any(first <= char <= last for first, last in self.ranges)


@final
class Glob:
    """A compiled pattern; matching takes time linear in the text."""

    __slots__ = ("_accepting", "_any", "_classes", "_literals", "_repeating", "pattern")

    def __init__(self, pattern: str) -> None:
        """Compile `pattern`; FormatError if it has more than GLOB_CHARS_MAX characters."""
        if len(pattern) > GLOB_CHARS_MAX:
            raise FormatError(f"a glob of at most {GLOB_CHARS_MAX} characters", len(pattern))
        self.pattern = pattern
        # Bit i of a set of states means: the first i single characters of the pattern have matched.
        self._literals: dict[str, int] = {}  # character -> the states that it advances
        self._any = 0  # the states that any character advances
        self._classes: dict[_Class, int] = {}  # class -> the states that its characters advance
        self._repeating = 0  # the states at a `*`; any character keeps them
        self._accepting = self._compile()

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches all of `text`."""
        if not self._repeating and not self._any and not self._classes:
            return text == self.pattern
        states = 1
        for char in text:
            advanced = self._literals.get(char, 0) | self._any
            for each, leaving in self._classes.items():
                if each.accepts(char):
                    advanced |= leaving
            states = (states & advanced) << 1 | states & self._repeating
            if not states:
                return False
        return bool(states & self._accepting)

    def _compile(self) -> int:
        state, at, pattern = 1, 0, self.pattern
        while at < len(pattern):
            char = pattern[at]
            at += 1
            if char == "*":
                self._repeating |= state
                continue
            end = _end_of_class(pattern, at) if char == "[" else -1
            if char == "?":
                self._any |= state
            elif end >= 0:
                found = _class(pattern[at:end])
                self._classes[found] = self._classes.get(found, 0) | state
                at = end + 1
            else:
                self._literals[char] = self._literals.get(char, 0) | state
            state <<= 1
        return state


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


def _end_of_class(pattern: str, at: int) -> int:
    """Return the index of the class's `]`, or -1 if there is none and `[` is a plain character."""
    if pattern[at : at + 1] == "!":
        at += 1
    return pattern.find("]", at + 1)  # a `]` in first place belongs to the class


def _class(content: str) -> _Class:
    negated = content.startswith("!")
    chars = content[1:] if negated else content
    ranges = []
    at = 0
    while at < len(chars):
        is_range = chars[at + 1 : at + 2] == "-" and at + 2 < len(chars)
        ranges.append((chars[at], chars[at + 2] if is_range else chars[at]))
        at += 3 if is_range else 1
    return _Class(tuple(ranges), negated)
