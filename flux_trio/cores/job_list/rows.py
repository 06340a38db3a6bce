"""A job as it is listed, and lists in pages. Pure.

What users choose has no natural length (names, notes, annotations). So a row leaves out its longest
values when it would be too long, and a page ends by its bytes: no list is too long for a frame.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from flux_trio.cores.job_list.details import Facts
from flux_trio.cores.job_list.records import Record

ROW_BYTES_MAX: Final = 1 << 17  # of one job, as JSON; the longest values are left out beyond it
PAGE_BYTES_MAX: Final = 1 << 16  # of a response of a stream, as JSON; or one job, if longer

Row: TypeAlias = dict[str, Any]

_REQUIRED: Final = frozenset(
    ("id", "userid", "urgency", "priority", "t_submit", "state", "exception_occurred")
)


class Sized(NamedTuple):
    """A row, and its bytes as JSON."""

    row: Row
    size: int


def row_of(record: Record, facts: Facts) -> Sized:
    """One job as listed, in at most ROW_BYTES_MAX."""
    row = _whole_row(record, facts)
    size = _size(row)
    if size > ROW_BYTES_MAX:
        size -= _leave_out(row, size - ROW_BYTES_MAX)
    return Sized(row, size)


def in_pages(rows: list[Sized]) -> list[list[Row]]:
    """`rows` in parts of at most PAGE_BYTES_MAX, or of one row."""
    pages: list[list[Row]] = []
    left = 0
    for row, size in rows:
        if not pages or size > left:
            pages.append([])
            left = PAGE_BYTES_MAX
        pages[-1].append(row)
        left -= size
    return pages


def _leave_out(row: Row, excess: int) -> int:
    """Take the longest values out of `row`, until `excess` bytes are gone; how many are."""
    sizes = {key: _size({key: value}) for key, value in row.items() if key not in _REQUIRED}
    gone = 0
    for key in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if gone >= excess:
            break
        del row[key]
        gone += sizes[key] - 1  # the comma takes the place of one of its braces
    return gone


def _size(value: Row) -> int:
    return len(msgspec.json.encode(value))


def _whole_row(record: Record, facts: Facts) -> Row:
    """One job as listed: its record, and the facts of its jobspec and R."""
    worst = record.worst or {}
    result = record.result
    optional: dict[str, Any] = {
        "t_depend": record.t_depend,
        "t_run": record.t_run,
        "t_cleanup": record.t_cleanup,
        "t_inactive": record.t_inactive,
        "success": None if result is None else record.success,
        "result": None if result is None else int(result),
        "exception_type": worst.get("type"),
        "exception_severity": worst.get("severity"),
        "exception_note": worst.get("note"),
        "waitstatus": record.status,
        "annotations": _annotations(record),
        "dependencies": sorted(record.dependencies) if record.dependencies else None,
    }
    row: Row = {
        "id": record.id,
        "userid": record.userid,
        "urgency": record.urgency,
        "priority": record.priority,
        "t_submit": record.t_submit,
        "state": int(record.state),
        "exception_occurred": record.worst is not None,
    }
    row |= {key: value for key, value in optional.items() if value is not None}
    row |= facts
    if record.expiration is not None:
        row["expiration"] = record.expiration
    if record.stepped:
        row["clock_step"] = record.stepped
    return row


def _annotations(record: Record) -> dict[str, Any] | None:
    """The scheduler's, and as `user` what memos say (RFC 21, Memo Event)."""
    if not record.memo:
        return record.annotations
    return {**(record.annotations or {}), "user": record.memo}
