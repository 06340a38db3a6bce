"""The Standard Workload Format: 18 numbers in a line, comments after `;`, -1 for unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from flux_trio.formats import FormatError, Words
from flux_trio.sim.log_rows import LeftOut, Notes, Row, WorkloadJob

SWF_FIELDS: Final = 18
# The origin of an SWF log's submit times if the log does not have one: 2000-01-01. It is not 0
# because no event may have the timestamp 0 (RFC 18).
SWF_EPOCH_DEFAULT: Final = 946684800.0
CANCELED: Final = 5  # a value of Status

UNKNOWN_RUN_TIME: Final = "unknown run time, so the requested time is taken"
NEVER_RAN: Final = "left out, since they were canceled and have no run time"
NO_TIME: Final = "left out, since run time and requested time are unknown"
NO_PROCESSORS: Final = "left out, since the number of processors is unknown"
NO_SUBMIT_TIME: Final = "left out, since the submit time is unknown"

# The fields that are read, by index from 0, with the names of the format's definition.
_NAMES: Final = {
    0: "Job Number",
    1: "Submit Time",
    3: "Run Time",
    4: "Number of Allocated Processors",
    7: "Requested Number of Processors",
    8: "Requested Time",
    10: "Status",
    11: "User ID",
}
_START_TIME = re.compile(r";\s*UnixStartTime:\s*([0-9]{1,12})\b.*")


def is_swf(first: str) -> bool:
    """Return whether the first line of a log is one of this format."""
    return first.lstrip().startswith(";") or len(first.split()) == SWF_FIELDS


def swf_rows(texts: Iterable[str], where: str, notes: Notes) -> Iterator[tuple[Row, WorkloadJob]]:
    """Yield each row with its job; jobs that are left out are noted. Raises FormatError."""
    epoch = SWF_EPOCH_DEFAULT
    for line, text in enumerate(texts, 1):
        stripped = text.strip()
        if stripped.startswith(";"):
            match = _START_TIME.fullmatch(stripped)
            epoch = float(match[1]) if match else epoch
        elif stripped:
            notes.rows += 1
            row = Row(where, line, _by_name(stripped, f"{where}, line {line}"), notes)
            try:
                yield row, _job(row, epoch)
            except LeftOut as reason:
                row.note(str(reason))


def _by_name(text: str, place: str) -> dict[str, str]:
    fields = text.split()
    if len(fields) != SWF_FIELDS:
        raise FormatError(f"{SWF_FIELDS} numbers", Words(f"{len(fields)}: {text}"), place)
    return {name: fields[index] for index, name in _NAMES.items()}


def _job(row: Row, epoch: float) -> WorkloadJob:
    user = row.integer("User ID", -1)
    submit_s = row.seconds("Submit Time")
    if submit_s is None:
        raise LeftOut(NO_SUBMIT_TIME)
    limit_s = row.seconds("Requested Time")
    return WorkloadJob(
        name=str(row.integer("Job Number", 0)),
        nnodes=None,
        ncores=_ncores(row),
        ngpus=0,
        timelimit_s=limit_s or 0.0,
        submit_s=epoch + submit_s,
        elapsed_s=_elapsed_s(row, limit_s),
        user=None if user < 0 else str(user),
    )


def _ncores(row: Row) -> int:
    """Return the allocated processors; a job that has never run has only requested ones."""
    for column in ("Number of Allocated Processors", "Requested Number of Processors"):
        if (ncores := row.integer(column, -1)) > 0:
            return ncores
    raise LeftOut(NO_PROCESSORS)


def _elapsed_s(row: Row, limit_s: float | None) -> float:
    elapsed_s = row.seconds("Run Time")
    if elapsed_s is not None:
        return elapsed_s
    if row.integer("Status", -1) == CANCELED:
        raise LeftOut(NEVER_RAN)
    if not limit_s:
        raise LeftOut(NO_TIME)
    row.note(UNKNOWN_RUN_TIME)
    return limit_s
