"""job-list.list and job-list.list-id: what everybody may read about every job.

A list is made in slices, one a turn, so that a long one holds up neither the kvs nor this service.
The lists of one user are made one after another: hundreds of them take the others no more time than
one. Keys whose value is not known are left out.
"""

from __future__ import annotations

from collections import deque
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
from flux_trio.services.turns import SetTimer

SLICE_JOBS: Final = 64  # twice as many lookups at most; made in 2 ms
LIST_JOBS: Final = 16  # that a list counts as itself, found or not: for reading the request
GUEST_REST_S: Final = 0.008  # after a slice for a guest, so that most calls of others do not wait
LOOKS_MAX: Final = 4096  # at jobs a turn, for a slice: about 2 ms

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
    left: Iterator[Record]  # not looked at yet
    userid: int
    name: str  # "" for any
    queues: frozenset[str]  # none for any
    rows_max: int | None
    rows: list[dict[str, Any]] = field(default_factory=list)
    is_over: bool = False  # nothing is left

    def take_slice(self) -> list[Record]:
        """The next jobs of its user, none if there are none among so many."""
        rows_left = SLICE_JOBS if self.rows_max is None else self.rows_max - len(self.rows)
        if rows_left <= 0:
            self.is_over = True
            return []
        is_filtered = self.name or self.queues  # by facts that are not known yet
        wanted = SLICE_JOBS if is_filtered else min(SLICE_JOBS, rows_left)
        found: list[Record] = []
        looked = 0
        for record in islice(self.left, LOOKS_MAX):
            looked += 1
            if self.userid in (USERID_UNKNOWN, record.userid):
                found.append(record)
                if len(found) == wanted:
                    return found
        self.is_over = looked < LOOKS_MAX
        return found

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
        self._open: dict[str, dict[int, _Listing]] = {}  # by sender, then matchtag
        self._of_user: dict[int, deque[_Listing]] = {}  # the first of each user is being made
        self._taken = 0  # jobs taken into lists in this turn, or as much work
        self.default_queue: str | None = None

    def start_turn(self) -> None:
        """Another turn: more may be taken into lists."""
        self._taken = 0

    def list_jobs(self, request: Request) -> None:
        """job-list.list: the jobs that are asked for, in order."""
        wanted = expect_payload(request, ListRequest)
        rows_max = wanted.max_entries or None
        chosen = self._records.in_order(wanted.states, wanted.since)
        queues = self._queues(wanted)
        listing = _Listing(request, chosen, wanted.userid, wanted.name, queues, rows_max)
        self._open.setdefault(request.sender, {})[request.matchtag] = listing
        lists = self._of_user.setdefault(request.userid, deque())
        lists.append(listing)
        if len(lists) == 1:
            self.go_on(request.userid)

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
        self._open.pop(sender, None)

    def _queues(self, wanted: ListRequest) -> frozenset[str]:
        if wanted.queues is not None:
            return frozenset(wanted.queues)
        return frozenset() if self.default_queue is None else frozenset([self.default_queue])

    def go_on(self, userid: int) -> None:
        """The next slice of the list that is being made for a user."""
        lists = self._of_user[userid]
        while lists and not self._is_open(lists[0]):
            lists.popleft()  # nobody waits for it any more
        if not lists:
            del self._of_user[userid]
            return
        listing = lists[0]
        slice_ = listing.take_slice()
        if slice_:
            self._details.gather(slice_, partial(self._add, listing, slice_))
            return
        if listing.is_over:
            self._end(listing)
            self._go_on_soon(userid)
        else:
            self._exchange.send(SetTimer(userid, self._exchange.now))

    def _end(self, listing: _Listing) -> None:
        sender, matchtag = listing.request.sender, listing.request.matchtag
        del self._open[sender][matchtag]
        if not self._open[sender]:
            del self._open[sender]
        self._taken += LIST_JOBS
        rows = listing.rows[: listing.rows_max]
        self._exchange.send(respond(listing.request, {"jobs": rows}))

    def _add(self, listing: _Listing, slice_: list[Record], facts: list[Facts]) -> None:
        """Take the slice's jobs into the list."""
        self._taken += len(slice_)
        for record, known in zip(slice_, facts, strict=True):
            if listing.wants(known):
                listing.rows.append(row_of(record, known))
        self._go_on_soon(listing.request.userid)

    def _go_on_soon(self, userid: int) -> None:
        """Go on in this turn after few jobs, else in the next: a list of jobs whose facts are all
        known would hold up everybody until its end.
        """
        if self._taken < SLICE_JOBS:
            self.go_on(userid)
            return
        is_guest = not self._of_user[userid][0].request.is_owner
        rest = GUEST_REST_S if is_guest else 0.0
        self._exchange.send(SetTimer(userid, self._exchange.now + rest))

    def _is_open(self, listing: _Listing) -> bool:
        sender, matchtag = listing.request.sender, listing.request.matchtag
        return self._open.get(sender, {}).get(matchtag) is listing


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
