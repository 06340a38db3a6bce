"""Read values that users type: times, users, urgencies, states, signals.

Each function takes a text; its ValueError says what was expected. The functions do not use click,
because `bulksubmit` makes the texts of its options per job.
"""

from __future__ import annotations

import math
import pwd
import re
import signal
from datetime import datetime
from typing import Any, Final

import msgspec

from flux_trio.formats import LESS_DEEP, FormatError, parse_duration
from flux_trio.messages import USERID_UNKNOWN
from flux_trio.protocols import (
    ACTIVE,
    PENDING,
    RUNNING,
    URGENCY_DEFAULT,
    URGENCY_EXPEDITE,
    URGENCY_HOLD,
    URGENCY_MAX,
    URGENCY_MIN,
    JobState,
)

_URGENCIES: Final = {"default": URGENCY_DEFAULT, "hold": URGENCY_HOLD, "expedite": URGENCY_EXPEDITE}
_TIMESTAMP: Final = re.compile(r"[0-9]+(\.[0-9]*)?")
STATES: Final = {
    **{state.name: int(state) for state in JobState if state is not JobState.NEW},
    "PENDING": int(PENDING),
    "RUNNING": int(RUNNING),
    "ACTIVE": int(ACTIVE),
}


_LIMIT: Final = 'a finite duration such as "30s" or "1.5h"; 0 for no limit'


def read_time_limit(text: str) -> float:
    """Return seconds; a number without a unit is minutes, as in `flux submit`.

    An infinite limit is refused: in a jobspec it would be a duration that is not set, for which
    the default of the queue applies (readings: No time limit).
    """
    try:
        seconds = parse_duration(text)
    except FormatError:
        seconds = math.inf
    if math.isinf(seconds):
        raise FormatError(_LIMIT, text)
    return seconds * 60 if text[-1:].isdigit() or text.endswith(".") else seconds


def read_user(text: str) -> int:
    """Return the id of a user given by name or number; the instance knows only numbers."""
    try:
        return pwd.getpwnam(text).pw_uid
    except KeyError:
        if text.isascii() and text.isdigit():
            return int(text)
    raise ValueError(f"there is no user {text!r}")


def read_user_or_all(text: str) -> int:
    """Return a user's id, or for `all` the id that means every user."""
    return USERID_UNKNOWN if text == "all" else read_user(text)


def read_urgency(text: str) -> int:
    """Return an urgency, 0 to 31, given by number or name."""
    if text.lower() in _URGENCIES:
        return _URGENCIES[text.lower()]
    if text.isascii() and text.isdigit() and URGENCY_MIN <= int(text) <= URGENCY_MAX:
        return int(text)
    known = ", ".join(_URGENCIES)
    raise ValueError(f"expected {URGENCY_MIN} to {URGENCY_MAX}, {known}; got {text!r}")


def read_states(text: str) -> int:
    """Return the mask of active states, given by names with commas."""
    mask = 0
    for name in text.split(","):
        if STATES.get(name.upper(), JobState.INACTIVE) == JobState.INACTIVE:
            raise ValueError(f"Invalid state {name} specified")
        mask |= STATES[name.upper()]
    return mask


def read_signal(text: str) -> int:
    """Return the number of a signal given as 15, TERM or SIGTERM."""
    if text.isascii() and text.isdigit() and 0 < int(text) < signal.NSIG:
        return int(text)
    name = text.upper()
    for spelling in (name, f"SIG{name}"):
        if spelling in signal.Signals.__members__:
            return int(signal.Signals[spelling])
    raise ValueError(f"Invalid signal {text}")


def read_warning_signal(text: str) -> dict[str, float]:
    """Return Flux's shell option `signal` from [SIG][@TIME]; by default USR1@60s."""
    name, _, before = text.partition("@")
    before_s = parse_duration(before or "60s")
    if math.isinf(before_s):
        raise ValueError(f"expected a duration that ends, got {before!r}")
    return {"signum": read_signal(name or "USR1"), "timeleft": before_s}


def check_dotted_key(key: str, text: str) -> None:
    """Raise ValueError if a name in `key` is empty; `text` is what the user typed."""
    if "" in key.split("."):
        raise ValueError(f"expected KEY=VALUE with a dotted key, got {text!r}")


def read_json_or_text(key: str, text: str) -> Any:
    """Return the value of `key`: JSON, or else the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    except RecursionError:
        raise ValueError(f"{key}: expected {LESS_DEEP}") from None


def read_time(text: str, now: float) -> float:
    """Return a time in seconds since the Unix epoch.

    The text is `now`, `+FSD` or `-FSD` from now, ISO 8601, words such as `3pm` or `yesterday`, or
    what the result is: seconds since the Unix epoch.
    """
    if text == "now":
        return now
    if text[:1] in ("+", "-"):
        change = parse_duration(text[1:])
        if math.isinf(change):
            raise ValueError(f"expected a duration that ends, got {text!r}")
        return now + change if text[0] == "+" else now - change
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return _read_words(text, now)


def _read_words(text: str, now: float) -> float:
    from parsedatetime import VERSION_CONTEXT_STYLE, Calendar

    calendar = Calendar(version=VERSION_CONTEXT_STYLE)
    calendar.ptc.StartHour = 0  # a day begins at midnight
    fields, found = calendar.parse(text, sourceTime=datetime.fromtimestamp(now).timetuple())
    if found.hasDateOrTime:
        return datetime(*fields[:6]).timestamp()
    if _TIMESTAMP.fullmatch(text):
        return float(text)
    raise ValueError(f'Invalid datetime: "{text}"')
