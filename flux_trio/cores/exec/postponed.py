"""Starts that the shell host has postponed because it lacks something: the service asks again.

An attempt costs the host much work. So the service asks for a job at most once a second, and for at
most RETRIES_MAX jobs a second. A job that starts shows that the host has what it lacked; then the
service asks for the next job at once.
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.state import Part
from flux_trio.formats.meanings import JobId, Time

RETRY_S: Final = 1.0
RETRIES_MAX: Final = 16  # a second; a job that is postponed again goes to the end


class Postponements(Part):
    """The jobs that wait, and why the last of them could not be started."""

    _retry_at: dict[JobId, Time]
    _text: str

    def __init__(self) -> None:
        self._retry_at = {}  # job → seconds since the Unix epoch; in that order
        self._text = ""

    @property
    def reason(self) -> str:
        """Return why jobs wait, as a text for people; "" if no job waits."""
        return f"the shell host cannot start jobs now: {self._text}" if self._retry_at else ""

    def __len__(self) -> int:
        return len(self._retry_at)

    def __contains__(self, jobid: int) -> bool:
        return jobid in self._retry_at

    def add(self, jobid: int, text: str, now: float) -> None:
        """Add a job whose start the host has postponed; `text` says why."""
        self._text = text
        self._asked(jobid, now)

    def remove(self, jobid: int) -> bool:
        """Remove a job; return whether it was waiting."""
        return self._retry_at.pop(jobid, None) is not None

    def take_due(self, count: int, now: float) -> list[int]:
        """Return up to `count` jobs to ask for now."""
        due: list[int] = []
        for jobid, at in self._retry_at.items():
            if at > now or len(due) == count:
                break
            due.append(jobid)
        for jobid in due:
            self._asked(jobid, now)
        return due

    def clock_stepped(self, by: float) -> None:
        """Move all times by `by` seconds, so that waiting times stay as long as they were."""
        self._retry_at = {jobid: at + by for jobid, at in self._retry_at.items()}

    def _asked(self, jobid: int, now: float) -> None:
        self._retry_at.pop(jobid, None)
        self._retry_at[jobid] = now + RETRY_S
