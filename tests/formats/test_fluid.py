from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import (
    FLUID_MAX,
    FluidForm,
    FluidGenerator,
    FormatError,
    format_fluid,
    parse_fluid,
)
from tests.support.reading import value_or_error

ID = 6731191091817518
SPELLINGS: dict[FluidForm, str] = {
    "dec": "6731191091817518",
    "hex": "0x17e9fb8df16c2e",
    "dothex": "0017.e9fb.8df1.6c2e",
    "kvs": "job.0017.e9fb.8df1.6c2e",
    "f58": "ƒuZZybuNNy",
    "f58plain": "fuZZybuNNy",
    "words": "reform-remote-galileo--heart-package-academy",
}


@pytest.mark.parametrize(("form", "text"), SPELLINGS.items())
def test_the_spellings_of_one_id(form: FluidForm, text: str) -> None:
    """19.fluid.3-7: F58, its ASCII prefix, hex, dothex and mnemonic words."""
    assert format_fluid(ID, form) == text
    assert value_or_error(lambda: parse_fluid(text)) == ID


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ƒZemgA8Bzf", 0xEDAF97D000000),
        ("0xedaf97d000000", 0xEDAF97D000000),
        ("000e.daf9.7d00.0000", 0xEDAF97D000000),
        ("ƒ278oEf7zGf", 8213253243011072),
        ("random-idea-yoyo--sugar-printer-academy", 0xEDAF97D000000),
    ],
)
def test_further_examples_of_the_rfc(text: str, value: int) -> None:
    """19.fluid.3, 19.fluid.7: and hex, dothex and words of the same id."""
    assert parse_fluid(text) == value


@given(st.integers(0, FLUID_MAX), st.sampled_from(get_args(FluidForm)))
def test_printed_ids_parse_back(value: int, form: FluidForm) -> None:
    """19.fluid.11: parsers keep all 64 bits, since the protocols carry ids as integers."""
    assert parse_fluid(format_fluid(value, form)) == value


@pytest.mark.parametrize(
    ("value", "text"), [(0, "ƒ1"), (57, "ƒz"), (58, "ƒ21"), (FLUID_MAX, "ƒjpXCZedGfVQ")]
)
def test_base58_of_small_and_large_ids(value: int, text: str) -> None:
    """19.fluid.3: the alphabet leaves out 0, O, I and l."""
    assert format_fluid(value, "f58") == text
    assert parse_fluid(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("f1234", 0 * 58**3 + 58**2 + 2 * 58 + 3), ("1234", 1234), ("0x1234", 0x1234)],
)
def test_the_form_follows_from_how_the_text_begins(text: str, value: int) -> None:
    """19.fluid.9: f is F58, not hex."""
    assert parse_fluid(text) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f.1", "a dothex job id"),
        ("1-2.3", "a dothex job id"),
        ("0017.e9fb.8df1", "a dothex job id"),
        ("17.e9fb.8df1.6c2e", "a dothex job id"),
        ("f-1", "a job id in words"),
        ("-5", "a job id in words"),
        ("reform-remote-galileo", "a job id in words"),
        ("reform-remote-galileo--heart-package-flux", "a job id in words"),
        ("amen-amen-amen--academy-academy-ego", "a job id in words"),  # 5 bytes and 3
        ("f0x1", "an F58 job id"),
        ("ƒ", "an F58 job id"),
        ("ƒ0", "an F58 job id"),
        ("fOIl", "an F58 job id"),
        ("😄😹🎇📥🏧🙉🔞", "emoji form is not supported"),
        ("0x", "a hexadecimal job id"),
        ("0xg", "a hexadecimal job id"),
        ("0X1", "a job id such as"),
        ("12a", "a job id such as"),
        ("1_2", "a job id such as"),
        ("", "a job id such as"),
        ("1 2", "a job id such as"),
    ],
)
def test_errors_name_the_form_that_the_text_was_taken_for(text: str, expected: str) -> None:
    """19.fluid.9: dothex, words, F58, emoji, hex, decimal, in that order."""
    with pytest.raises(FormatError, match=expected):
        parse_fluid(text)


@pytest.mark.parametrize(
    "text",
    ["Reform-Remote-Galileo--Heart-Package-Academy", "reform-remote-galileo-heart-package-academy"],
)
def test_words_are_taken_as_they_are_spoken(text: str) -> None:
    """19.fluid.7: over the phone nobody hears capitals, or one hyphen from two."""
    assert parse_fluid(text) == ID


@pytest.mark.parametrize("text", SPELLINGS.values())
def test_blanks_around_an_id_are_ignored(text: str) -> None:
    """19.fluid.10: leading and trailing."""
    assert value_or_error(lambda: parse_fluid(f" \t{text}\n")) == ID


@pytest.mark.parametrize(
    "text",
    [
        str(FLUID_MAX + 1),
        "f" + "z" * 11,
        "0x1" + "0" * 16,
        pytest.param("9" * 5000, id="5000 digits"),
    ],
)
def test_ids_of_more_than_64_bits_are_refused(text: str) -> None:
    """19.fluid.1: an id has 64 bits."""
    with pytest.raises(FormatError):
        parse_fluid(text)


def test_only_ids_are_read_and_printed() -> None:
    """19.fluid.11: a JSON number is no id where an id may come in any form."""
    for value in (-1, FLUID_MAX + 1):
        with pytest.raises(FormatError, match="64 bits"):
            format_fluid(value, "dec")
    with pytest.raises(FormatError, match="as a string"):
        parse_fluid(5)


def test_layout_of_an_id() -> None:
    """19.fluid.1: 40 bits of milliseconds, 14 of generator, 10 of sequence."""
    generator = FluidGenerator(generator_id=5, start_ms=1000)
    first, second = generator.next(1007), generator.next(1007)
    assert first == 7 << 24 | 5 << 10 | 0
    assert second == 7 << 24 | 5 << 10 | 1
    assert FluidGenerator().next(0) == 0


@given(st.lists(st.integers(0, 40), max_size=50), st.integers(0, (1 << 14) - 1))
def test_ids_only_grow_whatever_the_clock_does(clock: list[int], generator_id: int) -> None:
    """19.fluid.1, 19.fluid.2: unique and ordered."""
    generator = FluidGenerator(generator_id, start_ms=20)
    made = [generator.next(now_ms) for now_ms in clock]
    assert made == sorted(set(made))
    assert {fluid >> 10 & 0x3FFF for fluid in made} <= {generator_id}


def test_more_than_1024_ids_in_a_millisecond_borrow_from_the_next() -> None:
    """19.fluid.2: no duplicates at any rate."""
    generator = FluidGenerator(generator_id=1)
    made = [generator.next(7) for _ in range(3000)]
    assert made == sorted(set(made))
    assert [fluid >> 24 for fluid in (made[0], made[1023], made[1024], made[-1])] == [7, 7, 8, 9]
    assert generator.next(8) > made[-1]
    assert generator.next(50) == 50 << 24 | 1 << 10


def test_a_generator_started_again_goes_past_the_ids_of_the_last_run() -> None:
    """19.fluid.2: even if the clock went back in between."""
    before = FluidGenerator(3)
    last = [before.next(101) for _ in range(1500)][-1]
    after = FluidGenerator(3)
    after.advance_past(last)
    assert after.next(2) == before.next(101) > last
    after.advance_past(0)
    assert after.next(2) > last


def test_generators_with_different_ids_never_collide() -> None:
    """19.fluid.2: without coordination."""
    made = [FluidGenerator(i).next(5) for i in range(100)]
    assert len(set(made)) == 100


def test_limits_of_a_generator() -> None:
    """19.fluid.1: 40-bit timestamps, 14-bit generator ids."""
    for generator_id in (-1, 1 << 14):
        with pytest.raises(FormatError, match="a generator id"):
            FluidGenerator(generator_id)
    assert FluidGenerator((1 << 14) - 1).next((1 << 40) - 1) <= FLUID_MAX
    with pytest.raises(OverflowError, match="too far from the epoch"):
        FluidGenerator().next(1 << 40)
