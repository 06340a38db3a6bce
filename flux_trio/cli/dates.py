"""Moments for people: users may name ones that no calendar has."""

from __future__ import annotations

from datetime import datetime
from typing import Final

_LAST: Final = datetime(9999, 12, 31).timestamp()


def local_time(timestamp: float) -> datetime:
    """The local time of a moment, seconds since the Unix epoch; the last day for one beyond it."""
    return datetime.fromtimestamp(min(max(0.0, timestamp), _LAST))
