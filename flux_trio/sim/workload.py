"""Workloads: the jobs of a log, to be submitted again in simulated time.

Two formats are recognized by their first line: comma-separated values with a header and with times
as Slurm's sacct prints them, and the Standard Workload Format of the Parallel Workloads Archive (18
numbers per line, comments after `;`). The caller opens the file. Left out: a log's queues,
partitions and dependencies between jobs.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from flux_trio.formats import FLUID_SPAN_S, MISSING, FormatError, Jobspec, Words

COLUMNS: Final = ("JobID", "NNodes", "NCPUS", "Timelimit", "Submit", "Elapsed")
GPUS_COLUMN: Final = "NGPUS"  # these three columns are optional; unknown columns are ignored
USER_COLUMN: Final = "User"
BANK_COLUMN: Final = "Account"
SWF_FIELDS: Final = 18
# The origin of an SWF log's submit times if the log does not have one: 2000-01-01. It is not 0
# because no event may have the timestamp 0 (RFC 18).
SWF_EPOCH_DEFAULT: Final = 946684800.0
SPAN_DAYS_MAX: Final = FLUID_SPAN_S // 86400  # the ingest service needs a minute of the rest
SHAPES_KEPT: Final = 1024  # most jobs of a log have a shape that others have too


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


def read_workload(
    lines: Iterable[str], where: str = "workload", cores_per_node: int | None = None
) -> list[WorkloadJob]:
    """Return the jobs of a log in the order of its lines; `where` names it in error messages.

    If NCPUS is 0 in every row, a job has all `cores_per_node` of its nodes. The FormatError names
    line and column.
    """
    texts = list(lines)
    first = next((text for text in texts if text.strip()), "")
    is_swf = _is_swf(first)
    rows = list(_read_swf(texts, where) if is_swf else _read_csv(texts, where))
    jobs = _with_cores(rows, cores_per_node)
    column = "Submit Time" if is_swf else "Submit"
    check_span(jobs, lambda place: f"{rows[place][0]}, column {column}")
    return jobs


def check_span(jobs: Sequence[WorkloadJob], where: Callable[[int], str]) -> None:
    """Raise FormatError if a job is submitted too long after the first for a job id (RFC 19).

    `where` takes the index of the job, and names it in the error message.
    """
    first_s = min((job.submit_s for job in jobs), default=0.0)
    for place, job in enumerate(jobs):
        days = (job.submit_s - first_s) / 86400
        if days > SPAN_DAYS_MAX:
            expected = (
                f"a time at most {SPAN_DAYS_MAX} days after the first submission, because a job "
                "id has 40 bits of milliseconds"
            )
            raise FormatError(expected, Words(f"{days:.1f} days"), where(place))


def _with_cores(
    rows: list[tuple[str, WorkloadJob]], cores_per_node: int | None
) -> list[WorkloadJob]:
    """Return the jobs of rows (place, job), with the cores of whole nodes if no row has cores."""
    jobs = [job for _, job in rows]
    uncounted = [place for place, job in rows if not job.ncores]
    if not uncounted:
        return jobs
    if len(uncounted) < len(jobs):
        expected = "an integer of at least 1, or 0 in every row"
        raise FormatError(expected, Words("0"), f"{uncounted[0]}, column NCPUS")
    if cores_per_node is None:
        expected = "an integer of at least 1, because the cores of a node are not known"
        raise FormatError(expected, Words("0"), f"{uncounted[0]}, column NCPUS")
    return [replace(job, ncores=(job.nnodes or 1) * cores_per_node) for job in jobs]


def to_jobspec(job: WorkloadJob) -> dict[str, Any]:
    """Return the V1 jobspec of a simulated job, with its time limit and its elapsed time.

    A job of n nodes requests one slot on each node, with an equal part of the cores and gpus. Note
    on Lassen: a node has 44 cores, jobs may use 40, and its log counts 40. Simulate it with 40-core
    nodes, so that jobs do not share nodes.
    """
    system: dict[str, Any] = {
        "duration": job.timelimit_s,
        "job": {"name": job.name},
        "exec": {"test": {"run_duration": job.elapsed_s}},
    }
    if job.bank is not None:
        system["bank"] = job.bank
    shape = _shape(job.nnodes, job.nslots, job.cores_per_slot, job.gpus_per_slot)
    return shape | {"attributes": {"system": system}}


@lru_cache(maxsize=SHAPES_KEPT)
def _shape(
    nnodes: int | None, nslots: int, cores_per_slot: int, gpus_per_slot: int
) -> dict[str, Any]:
    """Return the jobspec of a shape without attributes; it is cached, so do not change it."""
    return Jobspec.from_command(
        ["simulated"],
        nnodes=nnodes,
        ntasks=nslots,
        cores_per_task=cores_per_slot,
        gpus_per_task=gpus_per_slot,
    ).to_json()


class _Row:
    """The values of one line by column; each getter raises FormatError for a wrong value."""

    def __init__(self, place: str, values: dict[str, str]) -> None:
        self._place = place
        self._values = values

    def __contains__(self, column: str) -> bool:
        return column in self._values

    def text(self, column: str) -> str:
        value = self._values[column].strip()
        if not value:
            raise self._error("a value", MISSING, column)
        return value

    def integer(self, column: str, at_least: int) -> int:
        text = self.text(column)
        if not _INTEGER.fullmatch(text) or int(text) < at_least:
            most = f" and at most {DIGITS_MAX} digits" if len(text) > DIGITS_MAX else ""
            raise self._error(f"an integer of at least {at_least}{most}", text, column)
        return int(text)

    def seconds(self, column: str) -> float:
        """Return seconds; SWF's -1, which means unknown, gives 0.0."""
        text = self.text(column)
        if not _SECONDS.fullmatch(text):
            raise self._error("a number of seconds, or -1 for unknown", text, column)
        return max(0.0, float(text))

    def duration(self, column: str) -> float:
        """Return the seconds of [D-]HH:MM:SS."""
        text = self.text(column)
        match = _DURATION.fullmatch(text)
        if match is None:
            raise self._error("a duration [D-]HH:MM:SS", text, column)
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)

    def moment(self, column: str) -> float:
        """Return the Unix time of an ISO date and time, which is UTC without a zone."""
        text = self.text(column)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise self._error("a time YYYY-MM-DDTHH:MM:SS", text, column) from None
        time = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if time <= 0:  # no event of a job may be at time 0 (RFC 18, timestamp)
            raise self._error("a time after 1970-01-01T00:00:00", text, column)
        return time

    def _error(self, expected: str, got: object, column: str) -> FormatError:
        return FormatError(expected, got, f"{self._place}, column {column}")


DIGITS_MAX: Final = 15
_INTEGER = re.compile(rf"-?[0-9]{{1,{DIGITS_MAX}}}")
_SECONDS = re.compile(r"-1|[0-9]{1,15}(\.[0-9]+)?")
_DURATION = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,6}):([0-5]?[0-9]):([0-5]?[0-9])")


def _read_csv(texts: list[str], where: str) -> Iterator[tuple[str, WorkloadJob]]:
    """Yield place and job of each row; the job has no cores if NCPUS is 0."""
    reader = csv.reader(texts, strict=True)
    header: list[str] = []
    try:
        for fields in reader:
            place = f"{where}, line {reader.line_num}"
            if header and fields:
                yield place, _csv_job(_Row(place, _by_column(header, fields, place)))
            elif fields:
                header = _check_header([field.strip() for field in fields], place)
    except csv.Error as error:
        place = f"{where}, line {reader.line_num}"
        raise FormatError("comma-separated values", Words(str(error)), place) from None
    if not header:
        raise FormatError(f"a header {','.join(COLUMNS)}, or SWF", MISSING, f"{where}, line 1")


def _check_header(header: list[str], place: str) -> list[str]:
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


def _csv_job(row: _Row) -> WorkloadJob:
    return WorkloadJob(
        name=row.text("JobID"),
        nnodes=row.integer("NNodes", 1),
        ncores=row.integer("NCPUS", 0),
        ngpus=row.integer(GPUS_COLUMN, 0) if GPUS_COLUMN in row else 0,
        timelimit_s=row.duration("Timelimit"),
        submit_s=row.moment("Submit"),
        elapsed_s=row.duration("Elapsed"),
        user=row.text(USER_COLUMN) if USER_COLUMN in row else None,
        bank=row.text(BANK_COLUMN) if BANK_COLUMN in row else None,
    )


# The fields that are read, by index from 0, with the names of the format's definition.
_SWF_NAMES: Final = {
    0: "Job Number",
    1: "Submit Time",
    3: "Run Time",
    4: "Number of Allocated Processors",
    7: "Requested Number of Processors",
    8: "Requested Time",
    11: "User ID",
}
_START_TIME = re.compile(r";\s*UnixStartTime:\s*([0-9]{1,12})\b.*")


def _is_swf(first: str) -> bool:
    return first.lstrip().startswith(";") or len(first.split()) == SWF_FIELDS


def _read_swf(texts: list[str], where: str) -> Iterator[tuple[str, WorkloadJob]]:
    """Yield place and job of each line that is no comment."""
    epoch = SWF_EPOCH_DEFAULT
    for line, text in enumerate(texts, 1):
        stripped = text.strip()
        if stripped.startswith(";"):
            match = _START_TIME.fullmatch(stripped)
            epoch = float(match[1]) if match else epoch
        elif stripped:
            place = f"{where}, line {line}"
            yield place, _swf_job(_swf_row(stripped, place), epoch)


def _swf_row(text: str, place: str) -> _Row:
    fields = text.split()
    if len(fields) != SWF_FIELDS:
        raise FormatError(f"{SWF_FIELDS} numbers", Words(f"{len(fields)}: {text}"), place)
    return _Row(place, {name: fields[index] for index, name in _SWF_NAMES.items()})


def _swf_job(row: _Row, epoch: float) -> WorkloadJob:
    user = row.integer("User ID", -1)
    allocated = row.integer("Number of Allocated Processors", -1)
    # a job that was canceled before it ran has only requested processors
    ncores = allocated if allocated > 0 else row.integer("Requested Number of Processors", 1)
    return WorkloadJob(
        name=str(row.integer("Job Number", 0)),
        nnodes=None,
        ncores=ncores,
        ngpus=0,
        timelimit_s=row.seconds("Requested Time"),
        submit_s=epoch + row.integer("Submit Time", 0),
        elapsed_s=row.seconds("Run Time"),
        user=None if user < 0 else str(user),
    )
