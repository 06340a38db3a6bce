"""Globs: what they match, and that no pattern is slow."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import FormatError
from flux_trio.formats.glob import GLOB_CHARS_MAX, Glob, glob_matches

TEXTS = st.text(alphabet="ab.-]![&|~^\\\n", max_size=12)
PATTERNS = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            ".",
            "-",
            "]",
            "*",
            "?",
            "[ab]",
            "[!a]",
            "[a-b]",
            "[]a]",
            "[!]]",
            "[",
            "&",
            "|",
            "~",
            "^",
            "!",
            "\\",
        ]
    ),
    max_size=8,
).map("".join)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("job-exception", "job-exception", True),
        ("job-exception", "job-exceptions", False),
        ("job-*", "job-", True),
        ("*", "", True),
        ("", "", True),
        ("", "a", False),
        ("*.state.*", "job.state.run", True),
        ("*.state.*", "job.state", False),
        ("?b", "ab", True),
        ("?b", "b", False),
        ("[a-c]x", "bx", True),
        ("[!a-c]x", "bx", False),
        ("[", "[", True),
        ("[]]", "]", True),
        ("a[b", "a[b", True),
    ],
)
def test_examples(pattern: str, text: str, expected: bool) -> None:
    assert Glob(pattern).matches(text) is expected
    assert glob_matches(pattern, text) is expected


@given(PATTERNS, TEXTS)
def test_matches_as_fnmatch_does(pattern: str, text: str) -> None:
    assert Glob(pattern).matches(text) == fnmatch.fnmatchcase(text, pattern)


@pytest.mark.parametrize("star", ["*a", "*?", "*[ab]", "*a*a"])
def test_a_match_that_backtracks_would_never_end(star: str) -> None:
    """There are more ways to share these characters among the stars than could ever be tried."""
    pattern = star * (GLOB_CHARS_MAX // len(star) - 1) + "x"
    assert not Glob(pattern).matches("a" * 1000)


def test_too_long_a_glob_is_refused_before_it_costs_anything() -> None:
    with pytest.raises(FormatError, match="at most 255 characters"):
        Glob("*" * (GLOB_CHARS_MAX + 1))
