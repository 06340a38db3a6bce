"""Reading which jobs there are: the active ones first, then, behind the back of users, the others.

The eventlogs of active jobs are read (RFC 16, Event Log), whose number the index in the kvs bounds
(`services.job_index`). When they have been, requests are answered, and the index of finished jobs
is read page by page, the newest first; a list that needs more of it waits for the next page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flux_trio.cores.job_index import ENDED, read_ended
from flux_trio.cores.job_list.exchange import (
    ActiveListed,
    ActiveLogs,
    EndedPage,
    Exchange,
    ScanCall,
    StrayLog,
)
from flux_trio.cores.job_list.finished import Finished
from flux_trio.cores.job_list.records import Records, folded
from flux_trio.cores.kvs_calls import (
    cannot_read,
    look_up,
    page_in,
    read_page,
    value_in,
    values_in,
)
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import EVENTLOG, ActivePage, active_in, look_up_jobs, read_active
from flux_trio.cores.turns import Log
from flux_trio.formats import job_key
from flux_trio.formats.meanings import JobId
from flux_trio.messages import Errno, FluxError, Level, Response
from flux_trio.protocols import JobState

PAGE_JOBS: Final = 1000  # of the index of finished jobs: about 3 ms of this service's time


class Scan(Part):
    """One reading at a time, each with a number; `done` is called when active jobs are known."""

    _number: int
    _found: set[JobId]
    over: set[JobId]
    running: bool

    def __init__(
        self, exchange: Exchange, records: Records, finished: Finished, done: Callable[[], None]
    ) -> None:
        self._exchange = exchange
        self._records = records
        self._finished = finished
        self._done = done
        self._number = 0  # of the reading that is under way or was the last
        self._found = set()  # active jobs that this one has found
        self.over = set()  # and those of them that turned out to be finished
        self.running = False  # active jobs are being read

    def start(self) -> None:
        """Ask which jobs are active, then for their eventlogs."""
        self._number += 1
        self.running = True
        self._found = set()
        self.over = set()
        self._ask_active("")

    def look_at(self, jobid: int) -> None:
        """Read the eventlog of one job, unless it is known to be over."""
        if jobid not in self.over:
            self.over.add(jobid)  # or is to be known as an active one when the answer comes
            read = StrayLog(self._number, jobid)
            self._exchange.ask(*look_up(job_key(jobid, EVENTLOG)), read)

    def take(self, step: ScanCall, response: Response) -> None:
        """The answer to one question; it leads to the next."""
        if step.scan != self._number:
            return
        try:
            match step:
                case ActiveListed():
                    self._take_active(active_in(response))
                case ActiveLogs():
                    self._take_logs(step, values_in(response))
                case EndedPage():
                    self._take_ended(response)
                case StrayLog(_, jobid):
                    self._take_stray(jobid, value_in(response))
        except FluxError as error:
            self._failed(step, error)

    def _failed(self, step: ScanCall, error: FluxError) -> None:
        """A job that is damaged costs that job alone: each of its page is read by itself."""
        if error.errnum == Errno.EBADMSG and isinstance(step, StrayLog):
            self._leave_out(error)
        elif error.errnum == Errno.EBADMSG and isinstance(step, ActiveLogs):
            for jobid in step.jobids:
                self._found.add(jobid)
                self.look_at(jobid)
            self._next_page(step.after)
        else:
            self._exchange.send(cannot_read("the jobs", error))

    # --- active jobs

    def _ask_active(self, after: str) -> None:
        self._exchange.ask(*read_active(after), ActiveListed(self._number))

    def _take_active(self, page: ActivePage) -> None:
        if not page.jobids:
            self._end_active()
            return
        read = ActiveLogs(self._number, page.jobids, page.after)
        self._exchange.ask(*look_up_jobs(page.jobids, [EVENTLOG]), read)

    def _take_logs(self, read: ActiveLogs, values: list[str | None]) -> None:
        for jobid, text in zip(read.jobids, values, strict=True):
            if text is not None:  # else it was refused meanwhile
                self._fold(jobid, text)
        self._next_page(read.after)

    def _next_page(self, after: str | None) -> None:
        if after is None:
            self._end_active()
        else:
            self._ask_active(after)

    def _fold(self, jobid: int, text: str) -> None:
        try:
            record = folded(jobid, text)
        except FluxError as error:
            self._leave_out(error)
            return
        self._found.add(jobid)
        if record.state == JobState.INACTIVE:
            self.over.add(jobid)
        self._records.put(record)

    def _leave_out(self, error: FluxError) -> None:
        self._exchange.send(Log(Level.ERR, f"{error.text}; the job is left out"))

    def _take_stray(self, jobid: int, text: str | None) -> None:
        if text is None:
            return
        self.over.discard(jobid)
        self._fold(jobid, text)

    def _end_active(self) -> None:
        """Jobs that were active and are not any more ended while nobody told of it."""
        self._records.keep_only(self._found)
        self._finished.begin()
        self.running = False
        self._ask_ended("")
        self._done()

    # --- finished jobs

    def _ask_ended(self, before: str) -> None:
        page = read_page(ENDED, PAGE_JOBS, before, reverse=True)
        self._exchange.ask(*page, EndedPage(self._number))

    def _take_ended(self, response: Response) -> None:
        page = page_in(response)
        jobs = [read_ended(key, value) for key, value in page.items]
        is_last = page.is_last(PAGE_JOBS)
        self._finished.fill(jobs, is_last=is_last)
        if not is_last:
            self._ask_ended(page.keys[-1])
