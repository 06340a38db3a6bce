"""Logs with a header, as Slurm's sacct prints them: separated by commas, or by | (-P, -p)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Final

from flux_trio.formats import MISSING, FormatError, Words
from flux_trio.sim.log_rows import LeftOut, Notes, Row, WorkloadJob
from flux_trio.sim.swf import SWF_FIELDS

COLUMNS: Final = ("JobID", "NNodes", "NCPUS", "Timelimit", "Submit", "Elapsed")
GPUS_COLUMN: Final = "NGPUS"  # these four columns are optional; unknown columns are ignored
USER_COLUMN: Final = "User"
BANK_COLUMN: Final = "Account"
STATE_COLUMN: Final = "State"

UNLIMITED: Final = "UNLIMITED"
NO_VALUE: Final = frozenset({None, "Unknown", "None", "N/A", "INVALID"})  # in sacct's words
NO_LIMIT: Final = "Timelimit is not a time, so there is no limit"
STEP: Final = "left out, since they are steps of jobs"
NO_SUBMIT_TIME: Final = "left out, since Submit is unknown"
NO_RUN_TIME: Final = "left out, since Elapsed is unknown"
NEVER_RAN: Final = "left out, since State says that they have not run"
NOT_OVER: Final = "left out, since State says that they were not over"
NO_NODES: Final = "left out, since NNodes is 0"

_WAITING: Final = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
_UNDER_WAY: Final = frozenset(
    {
        "COMPLETING",
        "CONFIGURING",
        "RESIZING",
        "RUNNING",
        "SIGNALING",
        "STAGE_OUT",
        "STOPPED",
        "SUSPENDED",
    }
)
_CANCELED: Final = "CANCELLED"  # before or after the start
_STEP = re.compile(r"\.(?:batch|extern|interactive|[0-9]+)$")
_UNITS: Final = {"": 1, "K": 1024, "M": 1024**2}
_COUNT = re.compile(r"([0-9]{1,15})([KM])?")


def sacct_rows(texts: list[str], where: str, notes: Notes) -> Iterator[tuple[Row, WorkloadJob]]:
    """Yield each row with its job, which has no cores if NCPUS is 0.

    Job steps, and jobs that are left out, are noted. What is separated by | has no quotes. Raises
    FormatError.
    """
    header: list[str] = []
    if "|" in next((text for text in texts if text.strip()), ""):
        reader = csv.reader(texts, delimiter="|", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(texts, strict=True)
    try:
        for fields in reader:
            place = f"{where}, line {reader.line_num}"
            if header and fields:
                notes.rows += 1
                row = Row(where, reader.line_num, _by_column(header, fields, place), notes)
                try:
                    yield row, _job(row)
                except LeftOut as reason:
                    row.note(str(reason))
            elif fields:
                header = _checked([field.strip() for field in fields], place)
    except csv.Error as error:
        place = f"{where}, line {reader.line_num}"
        raise FormatError("comma-separated values", Words(str(error)), place) from None
    if not header:
        raise FormatError(f"a header {','.join(COLUMNS)}, or SWF", MISSING, f"{where}, line 1")


def _checked(header: list[str], place: str) -> list[str]:
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        expected = f"a header with {', '.join(missing)} (or {SWF_FIELDS} numbers, SWF)"
        raise FormatError(expected, ",".join(header), place)
    return header


def _by_column(header: list[str], fields: list[str], place: str) -> dict[str, str]:
    if len(fields) != len(header):
        got = Words(f"{len(fields)}: {','.join(fields)}")
        raise FormatError(f"{len(header)} values", got, place)
    return dict(zip(header, fields, strict=True))


def _job(row: Row) -> WorkloadJob:
    name = row.text("JobID")
    if _STEP.search(name):
        raise LeftOut(STEP)
    if row.optional("Submit") in NO_VALUE:
        raise LeftOut(NO_SUBMIT_TIME)
    if row.optional("Elapsed") in NO_VALUE:
        raise LeftOut(NO_RUN_TIME)
    elapsed_s = row.duration("Elapsed")
    _check_over(row, elapsed_s)
    nnodes = _count(row, "NNodes")
    if not nnodes:
        raise LeftOut(NO_NODES)
    return WorkloadJob(
        name=name,
        nnodes=nnodes,
        ncores=_count(row, "NCPUS"),
        ngpus=row.integer(GPUS_COLUMN, 0) if GPUS_COLUMN in row else 0,
        timelimit_s=_timelimit_s(row),
        submit_s=row.moment("Submit"),
        elapsed_s=elapsed_s,
        user=row.optional(USER_COLUMN),
        bank=row.optional(BANK_COLUMN),
    )


def _check_over(row: Row, elapsed_s: float) -> None:
    """Raise LeftOut for a job that has not run to its end when the log was written.

    Without the column State, or in a state that is not known here, a job counts as over.
    """
    state = (row.optional(STATE_COLUMN) or "").partition(" ")[0].rstrip("+")  # CANCELLED by 1000
    if state in _WAITING or (state == _CANCELED and not elapsed_s):
        raise LeftOut(NEVER_RAN)
    if state in _UNDER_WAY:
        raise LeftOut(NOT_OVER)


def _count(row: Row, column: str) -> int:
    """Return a number, which sacct shortens if it is a multiple of 1024."""
    match = _COUNT.fullmatch(row.text(column))
    if match is None:
        return row.integer(column, 0)  # raises
    return int(match[1]) * _UNITS[match[2] or ""]


def _timelimit_s(row: Row) -> float:
    text = row.optional("Timelimit")
    if text == UNLIMITED:
        return 0.0
    if text in NO_VALUE or text == "Partition_Limit":
        row.note(NO_LIMIT)
        return 0.0
    return row.duration("Timelimit")
