"""A job as it is listed, and lists in pages. Pure.

Users choose names, notes and annotations, which may have any length. So a row that is too long
leaves out its longest values, and a page has a bound in bytes: every page fits in a frame.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from flux_trio.cores.job_list.records import Record
from flux_trio.cores.pages import page_size
from flux_trio.editions.job_list import REQUIRED, Facts, ListedJob, Row, row
from flux_trio.protocols import JobEvent

ROW_BYTES_MAX: Final = 1 << 17  # of one job, as JSON; the longest values are left out beyond it
PAGE_BYTES_MAX: Final = 1 << 16  # of a response of a stream, as JSON; or one job, if longer


class Sized(NamedTuple):
    """A row, and its bytes as JSON."""

    row: Row
    size: int


def sized(listed: Row) -> Sized:
    """Return a row in at most ROW_BYTES_MAX bytes; `listed` loses its longest values."""
    size = _size(listed)
    if size > ROW_BYTES_MAX:
        size -= _leave_out(listed, size - ROW_BYTES_MAX)
    return Sized(listed, size)


def in_pages(rows: list[Sized]) -> list[list[Row]]:
    """Split `rows` into pages of at most PAGE_BYTES_MAX bytes, or of one longer row."""
    pages: list[list[Row]] = []
    left = 0
    for each in rows:
        if not pages or each.size > left:
            pages.append([])
            left = page_size(PAGE_BYTES_MAX)
        pages[-1].append(each.row)
        left -= each.size
    return pages


def _leave_out(listed: Row, excess: int) -> int:
    """Remove the longest values until `excess` bytes are gone; return how many bytes are gone."""
    sizes = {key: _size({key: value}) for key, value in listed.items() if key not in REQUIRED}
    gone = 0
    for key in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if gone >= excess:
            break
        del listed[key]
        gone += sizes[key] - 1  # the comma takes the place of one of its braces
    return gone


def _size(value: Row) -> int:
    return len(msgspec.json.encode(value))


def row_of(record: Record, facts: Facts) -> Row:
    """Return the row of a job, however long it is."""
    worst, result = record.worst, record.result
    job = ListedJob(
        id=record.id,
        userid=record.userid,
        urgency=record.urgency,
        priority=record.priority if record.was_posted(JobEvent.PRIORITY) else None,
        t_submit=record.t_submit,
        state=int(record.state),
        exception_occurred=None if worst is None and result is None else worst is not None,
        t_depend=record.t_depend,
        t_priority=record.t_priority,
        t_sched=record.t_sched,
        t_run=record.t_run,
        t_cleanup=record.t_cleanup,
        t_inactive=record.t_inactive,
        success=None if result is None else record.success,
        result=None if result is None else int(result),
        exception_type=None if worst is None else worst.type,
        exception_severity=None if worst is None else worst.severity,
        exception_note=None if worst is None else worst.note,
        waitstatus=record.status,
        annotations=record.annotations,
        dependencies=sorted(record.dependencies) if record.dependencies else None,
        expiration=record.expiration,
        clock_step=record.stepped or None,
    )
    return row(job, facts)
