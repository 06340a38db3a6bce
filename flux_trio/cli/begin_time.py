"""Times as people type them: `+1h`, `now`, `15:30`, `2026-11-21 15:30`."""

from __future__ import annotations

from datetime import datetime, timedelta

from flux_trio.formats import FormatError, parse_duration

_EXPECTED = "now, +FSD such as +1h, a time such as 15:30, or a date such as 2026-11-21T15:30"


def parse_begin_time(text: str, now: float) -> float:
    """Seconds since the Unix epoch; `now` is too. FormatError.

    A time without a date is the next one, and one without a zone is of the local zone.
    """
    if text == "now":
        return now
    if text.startswith("+"):
        return now + _finite(text[1:])
    moment = _today(text, now)
    if moment is None:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise FormatError(_EXPECTED, text) from None
    return moment.timestamp()


def _finite(text: str) -> float:
    seconds = parse_duration(text)
    if seconds == float("inf"):
        raise FormatError("a duration that ends", text)
    return seconds


def _today(text: str, now: float) -> datetime | None:
    """Today's moment of a time of day, tomorrow's when that has passed; None for anything else."""
    for form in ("%H:%M", "%H:%M:%S"):
        try:
            clock = datetime.strptime(text, form)
        except ValueError:
            continue
        moment = datetime.combine(datetime.fromtimestamp(now).date(), clock.time())
        return moment if moment.timestamp() >= now else moment + timedelta(days=1)
    return None
