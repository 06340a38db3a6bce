"""Workloads: the jobs of a log, to be submitted again in simulated time.

Two formats are recognized by their first line: the values that Slurm's sacct prints, with a header
(`sacct`), and the Standard Workload Format of the Parallel Workloads Archive (`swf`). What a log
does not know of its jobs is said. Left out: the queues, partitions and dependencies of a log.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from flux_trio.formats import FLUID_SPAN_S, FormatError, Jobspec, Words
from flux_trio.sim.log_rows import Notes, Row, WorkloadJob
from flux_trio.sim.sacct import sacct_rows
from flux_trio.sim.swf import is_swf, swf_rows

SPAN_DAYS_MAX: Final = FLUID_SPAN_S // 86400  # the ingest service needs a minute of the rest
SHAPES_KEPT: Final = 1024  # most jobs of a log have a shape that others have too
GZIP_MAGIC: Final = b"\x1f\x8b"
NO_CPUS: Final = "left out, since NCPUS is 0"
NOT_UTF8: Final = "the log is not in UTF-8: it is read as Latin-1"

Warn = Callable[[str], None]


def decode_log(data: bytes, where: str = "workload", warn: Warn | None = None) -> list[str]:
    """Return the lines of a log as it is distributed: compressed by gzip, in UTF-8 or Latin-1.

    FormatError if the compressed data is damaged, or if it is no text.
    """
    if data.startswith(GZIP_MAGIC):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError("data that gzip has compressed", Words(error), where) from None
    if b"\0" in data:
        raise FormatError("text", Words("bytes that are 0"), where)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
        if warn is not None:
            warn(f"{where}: {NOT_UTF8}")
    return list(io.StringIO(text, newline=None))


def read_workload(
    lines: Iterable[str],
    where: str = "workload",
    cores_per_node: int | None = None,
    warn: Warn | None = None,
) -> list[WorkloadJob]:
    """Return the jobs of a log in the order of its lines; `where` names it in error messages.

    If NCPUS is 0 in every row, a job has all `cores_per_node` of its nodes. `warn` gets a line for
    everything that the log does not know of some jobs, and for each reason to leave out jobs. The
    FormatError names line and column.
    """
    texts, notes = list(lines), Notes()
    first = next((text for text in texts if text.strip()), "")
    read = swf_rows if is_swf(first) else sacct_rows
    rows = _with_cores(list(read(texts, where, notes)), cores_per_node)
    column = "Submit Time" if is_swf(first) else "Submit"
    jobs = [job for _, job in rows]
    check_span(jobs, lambda index: f"{rows[index][0].place}, column {column}")
    if warn is not None:
        for note in notes.lines():
            warn(f"{where}: {note}")
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
    rows: list[tuple[Row, WorkloadJob]], cores_per_node: int | None
) -> list[tuple[Row, WorkloadJob]]:
    """Give jobs the cores of whole nodes if no row has cores; else leave out those without."""
    counted = [(row, job) for row, job in rows if job.ncores]
    if counted or not rows:
        for row, job in rows:
            if not job.ncores:
                row.note(NO_CPUS)
        return counted
    if cores_per_node is None:
        expected = "an integer of at least 1, because the cores of a node are not known"
        raise rows[0][0].error(expected, Words("0"), "NCPUS")
    return [(row, replace(job, ncores=(job.nnodes or 1) * cores_per_node)) for row, job in rows]


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
