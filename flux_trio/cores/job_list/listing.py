"""job-list.list and job-list.list-id: what everybody may read about every job.

With `access.private-mode`, guests read only about their own jobs.

A list is a stream of pages, or one response if its request does not have the streaming flag. It is
made in slices, one a turn, so that a long list delays neither the kvs nor this service; it goes on
as long as its reader has credit. The lists of one user take turns, so hundreds of them delay other
users no more than one does, and a long one does not delay the others. A list reads the jobs that it
shows, and jobs whose name or queue is not known yet. A row leaves out the keys whose values are not
known.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Final

import msgspec

from flux_trio.config import Config
from flux_trio.cores.job_index import cut_name
from flux_trio.cores.job_list.changes import Changes
from flux_trio.cores.job_list.choosing import SLICE_JOBS, Chooser
from flux_trio.cores.job_list.constraint import ANY_STATE, parse_constraint
from flux_trio.cores.job_list.details import Details
from flux_trio.cores.job_list.exchange import (
    Exchange,
    IdRead,
    QueuesCounted,
    SliceRead,
    WaitingRequests,
)
from flux_trio.cores.job_list.finished import Finished, job_stats
from flux_trio.cores.job_list.line import Line
from flux_trio.cores.job_list.one_list import Listing
from flux_trio.cores.job_list.records import Records
from flux_trio.cores.job_list.rows import Sized, in_pages, sized
from flux_trio.cores.kvs_calls import values_in
from flux_trio.cores.pages import page_size
from flux_trio.cores.sharing import Allowance
from flux_trio.cores.state import Part
from flux_trio.cores.streams import Credit, Streams
from flux_trio.editions import job_list, job_requests
from flux_trio.editions.common import canceled
from flux_trio.editions.job_list import Row
from flux_trio.messages import (
    ROLE_OWNER,
    USERID_UNKNOWN,
    Errno,
    FluxError,
    Request,
    Response,
    end_of_stream,
    respond,
    respond_error,
    respond_stream,
    topics,
)
from flux_trio.protocols import ACTIVE

JOB_CHARS: Final = 8192  # of values; this many more count as one more job
LIST_JOBS: Final = 16  # that each list counts as, for reading its request
GUEST_REST_S: Final = 0.016  # after a slice for a guest, so that most calls of others do not wait
ROWS_MAX: Final = 20_000  # of a list in one response: no frame holds more
LIST_BYTES_MAX: Final = 12 << 20  # of the same, as JSON: a frame holds 16 MiB
STREAMS_OF_USER_MAX: Final = 64  # lists with credit open at once; beyond it EAGAIN

UNKNOWN_JOB: Final = "unknown job id"
OWN_JOBS: Final = "guests see only their own jobs (access.private-mode)"


class Listings(Part):
    """Answers list requests."""

    _open: Streams[Listing]
    _unfilled: list[Listing]
    _counting: list[Request]
    _streams: Allowance
    _taken: int
    config: Config

    def __init__(
        self,
        exchange: Exchange,
        records: Records,
        finished: Finished,
        details: Details,
        asked: WaitingRequests,
        changes: Changes,
    ) -> None:
        self._exchange = exchange
        self._records = records
        self._finished = finished
        self._details = details
        self._asked = asked
        self._changes = changes
        self.chooser = Chooser(records, finished)
        self._open = Streams()
        self._line = Line()
        self._unfilled = []  # lists that need more of the index of finished jobs
        self._counting = []  # requests that need all of it
        self._streams = Allowance(STREAMS_OF_USER_MAX, "lists with credit")
        self._taken = 0  # jobs taken into lists in this turn, or as much work
        self.config = Config()

    # --- requests

    def list_jobs(self, request: Request) -> None:
        """job-list.list: begin a list."""
        wanted = self._wanted(request)
        if (request.sender, request.matchtag) in self._open:
            raise FluxError(Errno.EPROTO, f"{request.topic}: expected a matchtag not in use")
        if wanted.credit is not None:
            if not request.is_streaming:
                raise FluxError(Errno.EPROTO, f"{request.topic}: credit is for streams")
            self._streams.count_opened(request.userid)
        listing = Listing(
            request,
            Credit(wanted.credit),
            wanted,
            self._states(wanted),
            self._queues(wanted),
            wanted.max_entries or None,
            "" if wanted.constraint is None else msgspec.json.encode(wanted.constraint).decode(),
        )
        self._open.add(listing)
        self._queue(listing)

    def grant(self, request: Request) -> None:
        """job-list.list-credit: the reader of a list is ready for more pages."""
        listing = self._open.granted(request)
        if listing is not None:
            self._queue(listing)
        self._exchange.send(respond(request))

    def cancel(self, request: Request) -> None:
        """job-list.list-cancel: end one of the sender's lists with ECANCELED."""
        listing = self._open.canceled(request)
        self._close(listing)
        self._stop_reading(listing)
        self._exchange.send(canceled(listing.request, request))
        self._exchange.send(respond(request, {}))

    def list_id(self, request: Request) -> None:
        """job-list.list-id: one job."""
        wanted = job_list.LIST_ID.read(request)
        job_list.check_attrs(wanted.attrs or ())
        record = self._records.find(wanted.id)
        if self._is_restricted(request) and (record is None or record.userid != request.userid):
            raise FluxError(Errno.EPERM, OWN_JOBS)
        if record is None:
            known = FluxError(Errno.ENOENT).text  # scripts of Flux's users look for it
            raise FluxError(
                Errno.ENOENT, UNKNOWN_JOB if wanted.attrs is None else f"{UNKNOWN_JOB}: {known}"
            )
        if self._changes.must_wait(request, record, wanted.state):
            return
        keys = tuple(self._details.keys_of([record]))
        if keys:
            self._asked.began(request, self._details.ask(keys, IdRead(request, record, keys)))
        else:
            self._answer_id(request, self._details.rows([record], (), []))

    def stats(self, request: Request) -> None:
        """job-list.job-stats: answer once all finished jobs have been counted."""
        if self._is_restricted(request):
            raise FluxError(Errno.EPERM, OWN_JOBS)
        if request.is_streaming:
            self._changes.follow_stats(request)
        if self._finished.is_complete:
            self._count(request)
        else:
            self._counting.append(request)

    def tell_followers(self) -> None:
        """Tell those who follow job-stats that jobs have changed.

        While the job manager is being asked for one of them, it is not asked again.
        """
        is_asked = any(
            isinstance(call, QueuesCounted) and call.request.is_streaming
            for call in self._exchange.calls
        )
        if is_asked or not self._finished.is_complete:
            self._changes.tell_later()
            return
        for request in self._changes.stats_due:
            self._count(request)

    def _count(self, request: Request) -> None:
        """Answer job-list.job-stats, or go on with its stream.

        With queues, the job manager is asked first: it knows the queue of each active job.
        """
        if self.config.queues:
            tag = self._exchange.ask(topics.JOB_STATS, None, QueuesCounted(request))
            self._asked.began(request, tag)
        else:
            self._tell_stats(request, {})

    def queues_counted(self, request: Request, response: Response) -> None:
        """Take the numbers of active jobs by queue; without a job manager there are none."""
        counted: dict[str, dict[str, int]] = {name: {} for name in self.config.queues}
        with suppress(FluxError):
            if not response.errnum:
                told = job_requests.STATS.read(response).queues
                counted |= {name: told[name] for name in counted if name in told}
        self._tell_stats(request, counted)

    def _tell_stats(self, request: Request, queues: Mapping[str, Mapping[str, int]]) -> None:
        counted = job_stats(self._records.counts, self._finished, queues)
        answer = respond_stream if request.is_streaming else respond
        self._exchange.send(answer(request, job_list.JOB_STATS.write(counted)))

    def forget(self, sender: str) -> None:
        """Close the lists of a peer that is gone."""
        gone = self._open.of_sender(sender)
        for listing in gone:
            self._close(listing)
        for listing in gone:
            self._stop_reading(listing)
        self._counting = [each for each in self._counting if each.sender != sender]

    # --- what happens meanwhile

    def start_turn(self) -> None:
        """Begin a turn: reset the count of jobs that were taken into lists."""
        self._taken = 0

    def filled(self) -> None:
        """Go on with requests that waited for more of the index of finished jobs."""
        unfilled, self._unfilled = self._unfilled, []
        for listing in unfilled:
            self._queue(listing)
        if self._finished.is_complete:
            counting, self._counting = self._counting, []
            for request in counting:
                self._count(request)

    def add_slice(self, read: SliceRead, response: Response) -> None:
        """Take the values of the jobs of a slice."""
        listing = self._open.get(read.list)
        assert listing is not None, "a list was closed without the read of its slice"
        listing.read = 0
        try:
            values = values_in(response)
        except FluxError as error:
            self._unread(listing, read, error)
        else:
            self._add_values(listing, read, values)
        self._next(listing)

    def _add_values(self, listing: Listing, read: SliceRead, values: list[str | None]) -> None:
        """Add the jobs whose values have come; the kvs may have left out the last ones."""
        self._taken += sum(len(text) for text in values if text) // JOB_CHARS
        unread = {jobid for jobid, _ in read.keys[len(values) :]}
        jobs = tuple(takewhile(lambda job: job.id not in unread, read.jobs))
        rest = read.jobs[len(jobs) :]
        if rest:  # a job that is too long for one read with others is read alone
            parts = [rest] if jobs else [rest[:1], rest[1:]]
            listing.retried.extendleft(part for part in reversed(parts) if part)
        self._add(listing, self._details.rows(jobs, read.keys[: len(values)], values))

    def answer_id(self, read: IdRead, response: Response) -> None:
        """Take the values of one job, and answer list-id."""
        try:
            rows = self._details.rows([read.job], read.keys, values_in(response))
        except FluxError as error:
            self._exchange.send(respond_error(read.request, error.errnum, error.text))
        else:
            self._answer_id(read.request, rows)

    def _answer_id(self, request: Request, rows: list[Row]) -> None:
        (row,), attrs = rows, job_list.LIST_ID.read(request).attrs
        listed = sized(row if attrs is None else job_list.chosen(row, attrs)).row
        self._exchange.send(respond(request, job_list.one_row(listed)))

    # --- making a list

    def _queue(self, listing: Listing) -> None:
        """Let `listing` take turns with the other lists of its user."""
        if not listing.is_queued and self._line.join(listing):
            self._go_on_soon(listing.request.userid)

    def go_on(self, userid: int) -> None:
        """Make the next slice for a user."""
        while (listing := self._line.first(userid)) is not None:
            if listing.read:
                return
            if self._open.is_open(listing) and self._has_room(listing):
                self._slice(listing)
                return
            others = self._line.leave(userid)  # it is closed, or its reader has no credit
            if others and self._taken >= page_size(SLICE_JOBS):
                self._go_on_soon(userid)
                return

    def _has_room(self, listing: Listing) -> bool:
        """Send the pages that are ready; return whether more may be made."""
        while listing.pages and listing.credit.allows(1):
            listing.credit.spend()
            is_first = listing.wanted.attrs is not None and not listing.has_begun
            listing.has_begun = True
            make = job_list.first_rows if is_first else job_list.rows
            page = make(listing.pages.popleft())
            self._exchange.send(respond_stream(listing.request, page))
        if listing.is_over and not (listing.pages or listing.retried):
            self._end(listing)
            return False
        return not listing.pages and bool(listing.credit.allows(1))

    def _slice(self, listing: Listing) -> None:
        """Choose the next jobs, and read their values."""
        if listing.retried:
            jobs = listing.retried.popleft()
            is_filled = True
        else:
            chosen, is_filled = self.chooser.choose(listing)
            jobs = tuple(chosen)
        userid = listing.request.userid
        if jobs:
            keys = tuple(self._details.keys_of(jobs))
            if keys:
                listing.read = self._details.ask(keys, SliceRead(listing.stream, jobs, keys))
            else:
                self._add(listing, self._details.rows(jobs, (), []))
                self._next(listing)
        elif listing.is_over:
            self.go_on(userid)
        elif is_filled:  # it has looked at many jobs
            self._line.end_turn(userid)
            self._exchange.set_timer(userid, self._exchange.now)
        else:
            self._line.leave(userid)
            self._unfilled.append(listing)
            self.go_on(userid)

    def _add(self, listing: Listing, candidates: list[Row]) -> None:
        """Add the rows of jobs that are wanted."""
        self._taken += len(candidates)
        rows = []
        constraint = parse_constraint(listing.constraint) if listing.constraint else None
        attrs = listing.wanted.attrs
        for row in candidates:
            if listing.rows_left != 0 and listing.wanted.has(row, listing.states, listing.queues):
                if constraint is not None and not constraint.matches(row):
                    continue
                rows.append(sized(row if attrs is None else job_list.chosen(row, attrs)))
                if listing.rows_left is not None:
                    listing.rows_left -= 1
        if listing.rows_left == 0:
            listing.is_over = True
            listing.retried.clear()
        if listing.request.is_streaming:
            listing.pages += in_pages(rows)
        else:
            self._add_to_response(listing, rows)

    def _add_to_response(self, listing: Listing, rows: list[Sized]) -> None:
        """Add rows to a list in one response; refuse the list if it is too long."""
        listing.rows += [row for row, _ in rows]
        listing.nbytes += sum(size for _, size in rows)
        if len(listing.rows) > ROWS_MAX or listing.nbytes > LIST_BYTES_MAX:
            self._close(listing)
            most = f"{ROWS_MAX} jobs or {LIST_BYTES_MAX} bytes"
            text = f"more than {most}: expected a request with the streaming flag"
            self._exchange.send(respond_error(listing.request, Errno.EMSGSIZE, text))

    def _unread(self, listing: Listing, read: SliceRead, error: FluxError) -> None:
        """Handle a failed read: with a damaged key, read halves and leave that job out."""
        if error.errnum != Errno.EBADMSG:
            self._close(listing)
            self._exchange.send(respond_error(listing.request, error.errnum, error.text))
        elif len(read.jobs) > 1:
            middle = len(read.jobs) // 2
            listing.retried.extendleft([read.jobs[middle:], read.jobs[:middle]])

    def _next(self, listing: Listing) -> None:
        """Go on after a slice of `listing`: end it, or let the next list have its turn."""
        userid = listing.request.userid
        if not listing.is_over:
            self._line.end_turn(userid)
        self._go_on_soon(userid)

    def _go_on_soon(self, userid: int) -> None:
        """Go on in this turn after few jobs, else in a later turn.

        Without that, a list of jobs whose facts are all known would delay all others until its end.
        """
        if self._taken < page_size(SLICE_JOBS):
            self.go_on(userid)
            return
        first = self._line.first(userid)
        rest = 0.0 if first is None or first.request.is_owner else GUEST_REST_S
        self._exchange.set_timer(userid, self._exchange.now + rest)

    def _end(self, listing: Listing) -> None:
        self._taken += LIST_JOBS
        self._close(listing)
        if listing.request.is_streaming:
            self._exchange.send(end_of_stream(listing.request))
        else:
            self._exchange.send(respond(listing.request, job_list.rows(listing.rows)))

    def _stop_reading(self, listing: Listing) -> None:
        """Ignore the slice that a closed list reads, and go on with the next list of its user."""
        if listing.read:
            self._exchange.calls.close(listing.read)
            listing.read = 0
            self._go_on_soon(listing.request.userid)

    def _close(self, listing: Listing) -> None:
        self._open.remove(listing)
        self.chooser.forget(listing)
        if listing.credit.left is not None:
            self._streams.count_closed(listing.request.userid)

    def _is_restricted(self, request: Request) -> bool:
        """Return whether the sender may see only its own jobs."""
        return self.config.access.private_mode and not request.rolemask & ROLE_OWNER

    def _wanted(self, request: Request) -> job_list.List:
        """Return what a list is about; with private-mode, a guest's is about its own jobs."""
        wanted = job_list.LIST.read(request).constrained()
        wanted = msgspec.structs.replace(wanted, name=cut_name(wanted.name))  # as rows have it
        job_list.check_attrs(wanted.attrs or ())
        if not self._is_restricted(request):
            return wanted
        if wanted.userid not in (USERID_UNKNOWN, request.userid):
            raise FluxError(Errno.EPERM, OWN_JOBS)
        return msgspec.structs.replace(wanted, userid=request.userid)

    def _states(self, wanted: job_list.List) -> int:
        """Return a mask of the states that a list looks at."""
        if wanted.constraint is not None:
            return parse_constraint(msgspec.json.encode(wanted.constraint).decode()).states
        if wanted.attrs is not None:
            return int(ANY_STATE)
        return ACTIVE if wanted.states is None else wanted.states

    def _queues(self, wanted: job_list.List) -> frozenset[str]:
        """Return the queues that a list is about; with a queue also its virtual queues."""
        if wanted.attrs is not None:
            return frozenset()
        default = self.config.default_queue
        names = wanted.queues if wanted.queues is not None else filter(None, [default])
        return frozenset().union(*map(self.config.with_virtual, names))
