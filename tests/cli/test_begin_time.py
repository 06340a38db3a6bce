"""--begin-time as people type it."""

from __future__ import annotations

from datetime import datetime

import pytest

from flux_trio.cli.begin_time import parse_begin_time
from flux_trio.formats import FormatError

NOON = datetime(2026, 11, 21, 12).timestamp()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOON),
        ("+1h", NOON + 3600),
        ("+1.5", NOON + 1.5),
        ("12:00", NOON),
        ("15:30", NOON + 3.5 * 3600),
        ("15:30:10", NOON + 3.5 * 3600 + 10),
        ("11:59", NOON + 24 * 3600 - 60),  # that of tomorrow
        ("2026-11-21T12:01", NOON + 60),
        ("2026-11-21 12:01", NOON + 60),
        ("1970-01-01T00:00:10+00:00", 10.0),
    ],
)
def test_time_is_one_of_the_unix_epoch(text: str, expected: float) -> None:
    assert parse_begin_time(text, NOON) == expected


@pytest.mark.parametrize("text", ["", "+", "+inf", "+1x", "soon", "25:00", "1000000.5"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="expected"):
        parse_begin_time(text, NOON)
