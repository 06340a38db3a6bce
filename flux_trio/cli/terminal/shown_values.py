"""Values as the user of a command reads them: ids of jobs, users, local times, ends of tasks."""

from __future__ import annotations

import pwd
import signal
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from flux_trio.process.console import id_form

_LAST: Final = datetime(9999, 12, 31).timestamp()


def shown_id(jobid: int) -> str:
    """Return a job id in F58, in ASCII where the locale has no ƒ. Raises FormatError."""
    from flux_trio.formats import format_fluid  # a command that fails needs no format

    return format_fluid(jobid, id_form())


def user_name(userid: int) -> str:
    """Return the name of a user, or the number if the user has no name here."""
    try:
        return pwd.getpwuid(userid).pw_name
    except (KeyError, OverflowError):
        return str(userid)


def local_time(timestamp: float) -> datetime:
    """Return the local time of a Unix timestamp in seconds, at most the last day of year 9999.

    A user may give a timestamp that is out of the calendar's range.
    """
    return datetime.fromtimestamp(min(max(0.0, timestamp), _LAST))


@dataclass
class HumanTimes:
    """Times in a row: the local minute, then seconds since; with `delta`, since the one before."""

    delta: bool = False
    _minute: str = ""
    _since: float = 0.0

    def text(self, timestamp: float) -> str:
        minute = local_time(timestamp).strftime("%b%d %H:%M")
        if minute != self._minute:
            self._minute, self._since = minute, timestamp
            return f"[{minute}]"
        offset = timestamp - self._since
        if self.delta:
            self._since = timestamp
        return f"[{offset:>+11.6f}]"


def how_it_ended(code: int) -> str:
    """Return an exit code in words; a code above 128 is a signal."""
    name = signal.strsignal(code - 128) if 128 < code < 128 + signal.NSIG else None
    return f"task(s) {name}" if name else f"task(s) exited with exit code {code}"
