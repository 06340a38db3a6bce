"""Numbers of bytes in words."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.formats import FormatError, format_size, parse_size


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0"), (1536, "1536"), (3 << 10, "3K"), (10 << 20, "10M"), (1 << 50, "1024T")],
)
def test_size_is_written_in_the_largest_unit_that_divides_it(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    ("value", "nbytes"),
    [
        ("0", 0),
        ("512", 512),
        ("10k", 10_240),
        ("10K", 10_240),
        ("1.5M", 3 << 19),
        (".5G", 1 << 29),
        ("2T", 2 << 40),
        (7, 7),
        (7.9, 7),
    ],
)
def test_size_is_read(value: Any, nbytes: int) -> None:
    assert parse_size(value) == nbytes


@pytest.mark.parametrize(
    "value", ["", "K", "1KB", "-1", "1e3", " 1", "inf", -1, True, None, [], float("nan"), 1e999]
)
def test_what_is_no_size_is_refused(value: Any) -> None:
    with pytest.raises(FormatError, match="a number of bytes such as"):
        parse_size(value)
