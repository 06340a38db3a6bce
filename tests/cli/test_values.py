"""Values as people type them."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from datetime import datetime

import pytest

from flux_trio.cli.terminal.values import (
    read_signal,
    read_states,
    read_time,
    read_time_limit,
    read_urgency,
    read_user,
    read_user_or_all,
)
from flux_trio.messages import USERID_UNKNOWN

NOON = datetime(2026, 11, 21, 12).timestamp()  # a Saturday
HOUR, DAY = 3600, 86400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOON),
        ("+1h", NOON + HOUR),
        ("+1.5", NOON + 1.5),
        ("-1d", NOON - DAY),
        ("15:30", NOON + 3.5 * HOUR),
        ("3pm", NOON + 3 * HOUR),
        ("11:59", NOON - 60),  # that of today, as flux has it
        ("2026-11-21T12:01", NOON + 60),
        ("2026-11-21 12:01", NOON + 60),
        ("2026-11-21", NOON - 12 * HOUR),
        ("1970-01-01T00:00:10+00:00", 10.0),
        ("1795811812", 1795811812.0),  # flux-jobs(1): a timestamp
        ("1795811812.25", 1795811812.25),
        ("0", 0.0),
        ("yesterday", NOON - 36 * HOUR),
        ("tomorrow morning", NOON + 18 * HOUR),
        ("in an hour", NOON + HOUR),
    ],
)
def test_a_time_is_one_of_the_unix_epoch(text: str, expected: float) -> None:
    assert read_time(text, NOON) == expected


@pytest.mark.parametrize("text", ["", "+", "+inf", "+1x", "soonish", "nan", "1e9"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|Invalid datetime"):
        read_time(text, NOON)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (read_time_limit, "5", 300),
        (read_time_limit, "5s", 5),
        (read_urgency, "HOLD", 0),
        (read_urgency, "31", 31),
        (read_signal, "9", 9),
        (read_signal, "term", 15),
        (read_signal, "SIGUSR1", 10),
        (read_states, "pending", 2 + 4 + 8),
        (read_states, "run,CLEANUP", 16 + 32),
        (read_states, "active", 2 + 4 + 8 + 16 + 32),
        (read_user, pwd.getpwuid(os.getuid()).pw_name, os.getuid()),
        (read_user, "54321", 54321),
        (read_user_or_all, "all", USERID_UNKNOWN),
    ],
)
def test_a_value_has_several_spellings(
    read: Callable[[str], object], text: str, value: object
) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (read_urgency, "32", "expected 0 to 31, default, hold, expedite; got '32'"),
        (read_signal, "0", "Invalid signal 0"),
        (read_signal, "NOSUCH", "Invalid signal NOSUCH"),
        (read_states, "run,inactive", "Invalid state inactive specified"),
        (read_states, "nosuch", "Invalid state nosuch specified"),
        (read_user, "nosuchuser", "there is no user 'nosuchuser'"),
    ],
)
def test_a_value_that_is_none_says_so(
    read: Callable[[str], object], text: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(text)
