"""job-list.list and job-list.list-id: what everybody may read about every job.

A list is made in slices, so that a long one holds up neither the kvs nor this service. Keys whose
value is not known are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final

import msgspec

from flux_trio.messages import (
    USERID_UNKNOWN,
    Errno,
    FluxError,
    Request,
    expect_payload,
    respond,
)
from flux_trio.protocols import ACTIVE
from flux_trio.services.job_list.details import Details, Facts
from flux_trio.services.job_list.exchange import Exchange
from flux_trio.services.job_list.records import Record, Records
from flux_trio.services.job_list.stats import job_stats

SLICE_JOBS: Final = 256  # twice as many lookups at most; parsed in about 10 ms

UNKNOWN_JOB: Final = "unknown job id"


class ListRequest(msgspec.Struct):
    """The job-list.list request; `max_entries` 0 is all, `since` is about inactive jobs only.

    Without `states` it is about pending and running jobs, without `queues` about those of the
    default queue (RFC 33, Job Submission and Listing Tools); an empty list is all queues.
    """

    max_entries: Annotated[int, msgspec.Meta(ge=0)] = 1000
    states: int = ACTIVE
    userid: int = USERID_UNKNOWN
    since: float = 0.0
    name: str = ""
    queues: list[str] | None = None


class IdRequest(msgspec.Struct):
    """The job-list.list-id request."""

    id: int


@dataclass(slots=True)
class _Listing:
    """One list request under way."""

    request: Request
    left: Iterator[Record]  # candidates
    name: str  # "" for any
    queues: list[str]  # none for any
    rows_max: int | None
    rows: list[dict[str, Any]] = field(default_factory=list)

    def wants(self, facts: Facts) -> bool:
        """Whether a candidate of which this is known is to be listed."""
        if self.name and facts.get("name") != self.name:
            return False
        return not self.queues or facts.get("queue") in self.queues


class Listings:
    """Answers list requests."""

    def __init__(self, exchange: Exchange, records: Records, details: Details) -> None:
        self._exchange = exchange
        self._records = records
        self._details = details
        self._open: dict[tuple[str, int], _Listing] = {}  # by sender and matchtag
        self.default_queue: str | None = None

    def list_jobs(self, request: Request) -> None:
        """job-list.list: the jobs that are asked for, in order."""
        wanted = expect_payload(request, ListRequest)
        rows_max = wanted.max_entries or None
        chosen = (
            record
            for record in self._records.in_order(wanted.states, wanted.since)
            if wanted.userid in (USERID_UNKNOWN, record.userid)
        )
        # the jobs of now: later slices must not miss one that has moved
        queues = self._queues(wanted)
        candidates = list(islice(chosen, None if wanted.name or queues else rows_max))
        listing = _Listing(request, iter(candidates), wanted.name, queues, rows_max)
        self._open[request.sender, request.matchtag] = listing
        self._go_on(listing)

    def list_id(self, request: Request) -> None:
        """job-list.list-id: one job."""
        record = self._records.jobs.get(expect_payload(request, IdRequest).id)
        if record is None:
            raise FluxError(Errno.ENOENT, UNKNOWN_JOB)

        def answer(facts: list[Facts]) -> None:
            self._exchange.send(respond(request, {"job": row_of(record, facts[0])}))

        self._details.gather([record], answer)

    def stats(self, request: Request) -> None:
        """job-list.job-stats."""
        self._exchange.send(respond(request, job_stats(self._records.counts)))

    def forget(self, sender: str) -> None:
        """Nobody waits for these lists any more."""
        for key in [key for key in self._open if key[0] == sender]:
            del self._open[key]

    def _queues(self, wanted: ListRequest) -> list[str]:
        if wanted.queues is not None:
            return wanted.queues
        return [] if self.default_queue is None else [self.default_queue]

    def _go_on(self, listing: _Listing) -> None:
        key = (listing.request.sender, listing.request.matchtag)
        if self._open.get(key) is not listing:
            return
        slice_ = list(islice(listing.left, SLICE_JOBS))
        if slice_ and (listing.rows_max is None or len(listing.rows) < listing.rows_max):
            self._details.gather(slice_, partial(self._add, listing, slice_))
        else:
            del self._open[key]
            rows = listing.rows[: listing.rows_max]
            self._exchange.send(respond(listing.request, {"jobs": rows}))

    def _add(self, listing: _Listing, slice_: list[Record], facts: list[Facts]) -> None:
        for record, known in zip(slice_, facts, strict=True):
            if listing.wants(known):
                listing.rows.append(row_of(record, known))
        self._go_on(listing)


def row_of(record: Record, facts: Facts) -> dict[str, Any]:
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
    row: dict[str, Any] = {
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
    return row


def _annotations(record: Record) -> dict[str, Any] | None:
    """The scheduler's, and as `user` what memos say (RFC 21, Memo Event)."""
    if not record.memo:
        return record.annotations
    return {**(record.annotations or {}), "user": record.memo}
