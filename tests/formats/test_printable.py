"""Text of others in one line that drives no terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("naïve 名前 🚀", "naïve 名前 🚀"),
        ("full\u3000width\xa0space", "full\u3000width\xa0space"),
        ("a\nsched.err: forged", r"a\nsched.err: forged"),
        ("a\r\tb\x00", r"a\r\tb\x00"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b31m\x7f\x85", r"\x9b31m\x7f\x85"),
        ("\u202eevil\u2066\u200f\u061c", r"\u202eevil\u2066\u200f\u061c"),
        ("line\u2028paragraph\u2029", r"line\u2028paragraph\u2029"),
        ("\ud800\U000e0041\ufeff", r"\ud800\U000e0041\ufeff"),
        ("caf\udce9", r"caf\xe9"),
        ("C:\\name", "C:\\name"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_characters_to_keep_stay() -> None:
    assert printable("a\nb\x1b", keep="\n") == "a\nb\\x1b"


@given(st.text(st.characters()))
def test_nothing_of_a_control_is_left_and_all_else_stays(text: str) -> None:
    shown = printable(text)
    assert not {unicodedata.category(each) for each in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert printable(shown) == shown
    if text.isprintable():
        assert shown == text
