"""The rows of a job log: values by column, the jobs that they describe, what they leave open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from flux_trio.formats import MISSING, FormatError

DIGITS_MAX: Final = 15


@dataclass(frozen=True, slots=True)
class WorkloadJob:
    name: str
    """The job's name in the log."""
    nnodes: int | None
    """None if the log has only cores, which may be on any nodes."""
    ncores: int
    """On all nodes together."""
    ngpus: int
    """On all nodes together."""
    timelimit_s: float
    """Requested seconds; 0.0 means no limit."""
    submit_s: float
    """Submit time in seconds since the Unix epoch."""
    elapsed_s: float
    """Seconds of run time."""
    user: str | None = None
    """The job's user, if the log has it."""
    bank: str | None = None
    """The account that was charged, if the log has it."""

    @property
    def nslots(self) -> int:
        """The number of slots: one per node, or one per core if the log has only cores."""
        return self.nnodes or self.ncores

    @property
    def cores_per_slot(self) -> int:
        """Rounded up."""
        return -(-self.ncores // self.nslots)

    @property
    def gpus_per_slot(self) -> int:
        """Rounded up."""
        return -(-self.ngpus // self.nslots)


class LeftOut(Exception):
    """A row is no job that can be submitted again; the text says why."""


class Notes:
    """What a log does not know of its jobs, with the number of rows and the first line."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int]] = {}
        self.rows = 0

    def note(self, what: str, line: int) -> None:
        count, first = self._found.get(what, (0, line))
        self._found[what] = count + 1, first

    def lines(self) -> Iterator[str]:
        for what, (count, first) in self._found.items():
            yield f"{what}: {count} of {self.rows} rows, the first in line {first}"


class Row:
    """The values of one line by column; each getter raises FormatError for a wrong value."""

    def __init__(self, where: str, line: int, values: dict[str, str], notes: Notes) -> None:
        self.place = f"{where}, line {line}"
        self._line = line
        self._values = values
        self._notes = notes

    def __contains__(self, column: str) -> bool:
        return column in self._values

    def note(self, what: str) -> None:
        """Count something that the log does not know of this job."""
        self._notes.note(what, self._line)

    def optional(self, column: str) -> str | None:
        """Return a text; None if it is empty or the log does not have the column."""
        return self._values.get(column, "").strip() or None

    def text(self, column: str) -> str:
        value = self.optional(column)
        if value is None:
            raise self.error("a value", MISSING, column)
        return value

    def integer(self, column: str, at_least: int) -> int:
        """Return an integer, which may be written with a fraction of 0, as in `4.0`."""
        text = self.text(column)
        match = _INTEGER.fullmatch(text)
        if match is None or int(match[1]) < at_least:
            most = f" and at most {DIGITS_MAX} digits" if len(text) > DIGITS_MAX else ""
            raise self.error(f"an integer of at least {at_least}{most}", text, column)
        return int(match[1])

    def seconds(self, column: str) -> float | None:
        """Return seconds; None for SWF's -1, which means unknown."""
        text = self.text(column)
        if not _SECONDS.fullmatch(text):
            raise self.error("a number of seconds, or -1 for unknown", text, column)
        return None if text.startswith("-") else float(text)

    def duration(self, column: str) -> float:
        """Return the seconds of [D-][HH:]MM:SS, which may have a fraction."""
        text = self.text(column)
        match = _DURATION.fullmatch(text)
        if match is None:
            raise self.error("a duration [D-][HH:]MM:SS", text, column)
        days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
        return ((days * 24 + hours) * 60 + minutes) * 60 + float(match[4])

    def moment(self, column: str) -> float:
        """Return the Unix time of an ISO date and time, which is UTC without a zone."""
        text = self.text(column)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise self.error("a time YYYY-MM-DDTHH:MM:SS", text, column) from None
        time = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if time <= 0:  # no event of a job may be at time 0 (RFC 18, timestamp)
            raise self.error("a time after 1970-01-01T00:00:00", text, column)
        return time

    def error(self, expected: str, got: object, column: str) -> FormatError:
        return FormatError(expected, got, f"{self.place}, column {column}")


_INTEGER = re.compile(rf"(-?[0-9]{{1,{DIGITS_MAX}}})(?:\.0*)?")
_SECONDS = re.compile(r"-1(\.0*)?|[0-9]{1,15}(\.[0-9]*)?")
_DURATION = re.compile(
    r"(?:([0-9]{1,6})-)?(?:([0-9]{1,6}):)?([0-5]?[0-9]):([0-5]?[0-9](?:\.[0-9]+)?)"
)
