"""Local times; a user may give a timestamp that is out of the calendar's range."""

from __future__ import annotations

from datetime import datetime
from typing import Final

_LAST: Final = datetime(9999, 12, 31).timestamp()


def local_time(timestamp: float) -> datetime:
    """Return the local time of a Unix timestamp in seconds, at most the last day of year 9999."""
    return datetime.fromtimestamp(min(max(0.0, timestamp), _LAST))
