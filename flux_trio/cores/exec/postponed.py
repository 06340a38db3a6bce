"""Starts that the shell host could not do, because it lacks something: they are asked for again.

The host takes few words to say so, and much work to find out. So a job is asked for again at most
once a second, and of many jobs that wait RETRIES_MAX a second; each job that starts shows that
there is something again, and lets the next one be asked for at once.
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.state import Part
from flux_trio.formats.meanings import JobId, Time

RETRY_S: Final = 1.0
RETRIES_MAX: Final = 16  # of one second; jobs that are asked for in vain go to the end


class Postponements(Part):
    """The jobs that wait, and why the last of them could not be started."""

    _retry_at: dict[JobId, Time]
    _text: str

    def __init__(self) -> None:
        self._retry_at = {}  # job → seconds since the Unix epoch; in that order
        self._text = ""

    @property
    def reason(self) -> str:
        """Why jobs wait, for people; "" if no job waits."""
        return f"the shell host cannot start jobs now: {self._text}" if self._retry_at else ""

    def __len__(self) -> int:
        return len(self._retry_at)

    def __contains__(self, jobid: int) -> bool:
        return jobid in self._retry_at

    def add(self, jobid: int, text: str, now: float) -> None:
        """The host has refused a start; `text` says why."""
        self._text = text
        self._asked(jobid, now)

    def remove(self, jobid: int) -> bool:
        """The job waits no more; returns whether it did."""
        return self._retry_at.pop(jobid, None) is not None

    def take_due(self, count: int, now: float) -> list[int]:
        """Up to `count` jobs that are to be asked for now."""
        due: list[int] = []
        for jobid, at in self._retry_at.items():
            if at > now or len(due) == count:
                break
            due.append(jobid)
        for jobid in due:
            self._asked(jobid, now)
        return due

    def clock_stepped(self, by: float) -> None:
        """The wall clock was set by `by` seconds, which changes no duration."""
        self._retry_at = {jobid: at + by for jobid, at in self._retry_at.items()}

    def _asked(self, jobid: int, now: float) -> None:
        self._retry_at.pop(jobid, None)
        self._retry_at[jobid] = now + RETRY_S
