import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import FormatError, format_duration, parse_duration
from tests.support.reading import value_or_error

VECTORS = [
    ("2ms", 0.002),
    ("0.1s", 0.1),
    ("30", 30),
    ("1.2h", 4320),
    ("5m", 300),
    ("0s", 0),
    ("5d", 432000),
    ("inf", math.inf),
    ("INF", math.inf),
    ("infinity", math.inf),
]


@pytest.mark.parametrize(("text", "seconds"), VECTORS)
def test_vectors_of_the_rfc(text: str, seconds: float) -> None:
    """23.fsd.7: all ten give the listed seconds."""
    assert value_or_error(lambda: parse_duration(text)) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1e3", 1000),
        ("1E-3s", 0.001),
        (".5h", 1800),
        ("5.", 5),
        ("5.m", 300),
        ("+3", 3),
        ("-0", 0),
        ("0x1d", 29),
        ("0x10s", 16),
        ("0X.8p1m", 60),
        ("0x1p3d", 691200),
    ],
)
def test_the_number_is_what_strtod_takes(text: str, seconds: float) -> None:
    """23.fsd.1: N[SUFFIX] with N as in C99."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "s", "1h30m", " 5", "5 ", "5 s", "1_000", "٣", "5\n", ".", "e3", "0x", "1e", "5,5", "--1"],
)
def test_other_text_is_refused(text: str) -> None:
    """23.fsd.1: nothing but a number and at most one suffix."""
    with pytest.raises(FormatError, match="a duration such as"):
        parse_duration(text)


@pytest.mark.parametrize("value", ["-1s", "-1", "-0x1", -1, -0.5, math.nan])
def test_negative_durations_are_refused(value: str | float) -> None:
    """23.fsd.2: from 0 to infinity."""
    with pytest.raises(FormatError, match="from 0 to infinity"):
        parse_duration(value)


@pytest.mark.parametrize("text", ["nan", "NaN", "nan(1)", "-inf"])
def test_what_is_no_number_is_refused(text: str) -> None:
    """23.fsd.2: from 0 to infinity."""
    with pytest.raises(FormatError):
        parse_duration(text)


@pytest.mark.parametrize("text", ["5M", "5min", "1w", "5S", "5MS", "5sec", "5us", "5D"])
def test_other_suffixes_are_refused(text: str) -> None:
    """23.fsd.3: ms, s, m, h, d; case sensitive."""
    with pytest.raises(FormatError, match="units: ms, s, m, h, d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("unit", "seconds"), [("ms", 1e-3), ("s", 1), ("m", 60), ("h", 3600), ("d", 86400), ("", 1)]
)
def test_multipliers(unit: str, seconds: float) -> None:
    """23.fsd.4, 23.fsd.5: and without suffix the unit is seconds."""
    assert parse_duration(f"1{unit}") == seconds


@pytest.mark.parametrize("text", ["infs", "infinityh", "INFd", "infms", "infi"])
def test_infinity_takes_no_suffix(text: str) -> None:
    """23.fsd.6: the suffix is omitted."""
    with pytest.raises(FormatError):
        parse_duration(text)


@pytest.mark.parametrize(
    "value", ["1e400", "1e308d", "0x1p99999", pytest.param(10**400, id="integer")]
)
def test_finite_numbers_that_overflow_are_not_infinity(value: str | int) -> None:
    with pytest.raises(FormatError, match="a double can hold"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("value", "seconds"), [(30, 30.0), (1.5, 1.5), (0, 0.0), (math.inf, math.inf)]
)
def test_a_number_is_seconds(value: float, seconds: float) -> None:
    parsed = parse_duration(value)
    assert parsed == seconds
    assert type(parsed) is float


@pytest.mark.parametrize("value", [True, None, ["5"], b"5"])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(FormatError, match="a duration such as"):
        parse_duration(value)  # type: ignore[arg-type]  # decoded data may be anything


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.002, "2ms"),
        (0.1, "0.1s"),
        (30, "30s"),
        (90, "90s"),
        (300, "5m"),
        (3600, "1h"),
        (4320, "72m"),
        (86400, "1d"),
        (1e300, "1e+300s"),
        (math.inf, "infinity"),
    ],
)
def test_durations_print_in_the_shortest_exact_way(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.floats(min_value=0, allow_nan=False) | st.integers(0, 10**9).map(float))
def test_printed_durations_parse_back_exactly(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


def test_impossible_durations_are_not_printed() -> None:
    for seconds in (-1.0, math.nan):
        with pytest.raises(FormatError):
            format_duration(seconds)
