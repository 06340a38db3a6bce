"""Reading which jobs there are: first active jobs, then finished jobs while requests are answered.

The eventlogs of the active jobs in the index (`cores.job_index`) are read first (RFC 16, Event
Log). Then requests are answered, while the index of finished jobs is read page by page, the newest
job first. A list that needs more of the index waits for the next page.
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
from flux_trio.cores.kvs_calls import cannot_read, look_up, page_in, read_page, value_in, values_in
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import ActivePage, JobsWanted, active_in, read_active
from flux_trio.cores.turns import Log
from flux_trio.formats import EVENTLOG, job_key
from flux_trio.formats.meanings import JobId
from flux_trio.messages import Errno, FluxError, Level, Response
from flux_trio.protocols import JobState

PAGE_JOBS: Final = 1000  # of the index of finished jobs: about 3 ms of this service's time


class Scan(Part):
    """Reads all jobs, once or again; calls `done` when the active jobs are known."""

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
        self._number = 0  # of the last reading
        self._found = set()  # active jobs that this reading has found
        self.over = set()  # those of them that turned out to be finished
        self.running = False  # active jobs are being read

    def start(self) -> None:
        """Begin a reading, which has a number of its own."""
        self._number += 1
        self.running = True
        self._found = set()
        self.over = set()
        self._ask_active("")

    def look_at(self, jobid: int) -> None:
        """Read the eventlog of one job, unless the job is known to be over."""
        if jobid not in self.over:
            self.over.add(jobid)  # the answer removes it from there if it is active
            read = StrayLog(self._number, jobid)
            self._exchange.ask_kvs(look_up(job_key(jobid, EVENTLOG)), read)

    def step_answered(self, step: ScanCall, response: Response) -> None:
        """Take the answer to one call and make the next one."""
        if step.scan != self._number:
            return
        try:
            match step:
                case ActiveListed():
                    self._add_active(active_in(response))
                case ActiveLogs():
                    self._add_logs(step, values_in(response))
                case EndedPage():
                    self._add_ended(response)
                case StrayLog(_, jobid):
                    self._add_stray(jobid, value_in(response))
        except FluxError as error:
            self._failed(step, error)

    def _failed(self, step: ScanCall, error: FluxError) -> None:
        """Leave out a damaged job; if it is on a page, read each job of the page by itself."""
        if error.errnum == Errno.EBADMSG and isinstance(step, StrayLog):
            self._leave_out(error)
        elif error.errnum == Errno.EBADMSG and isinstance(step, ActiveLogs):
            for jobid in step.jobs.jobids:
                self._found.add(jobid)
                self.look_at(jobid)
            self._next_page(step.after)
        else:
            self._exchange.send(cannot_read("the jobs", error))

    # --- active jobs

    def _ask_active(self, after: str) -> None:
        self._exchange.ask_kvs(read_active(after), ActiveListed(self._number))

    def _add_active(self, page: ActivePage) -> None:
        if not page.jobids:
            self._end_active()
            return
        self._ask_logs(JobsWanted(page.jobids, (EVENTLOG,)), page.after)

    def _ask_logs(self, wanted: JobsWanted, after: str | None) -> None:
        self._exchange.ask_kvs(wanted.ask(), ActiveLogs(self._number, wanted, after))

    def _add_logs(self, read: ActiveLogs, values: list[str | None]) -> None:
        jobs, rest = read.jobs.take(values)
        for jobid, (text,) in jobs:
            if text is not None:  # else the job was refused meanwhile
                self._fold(jobid, text)
        if rest is None:
            self._next_page(read.after)
        else:
            self._ask_logs(rest, read.after)

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

    def _add_stray(self, jobid: int, text: str | None) -> None:
        if text is None:
            return
        self.over.discard(jobid)
        self._fold(jobid, text)

    def _end_active(self) -> None:
        """End the reading of active jobs; jobs that it has not found are over."""
        self._records.keep_only(self._found)
        self._finished.begin()
        self.running = False
        self._ask_ended("")
        self._done()

    # --- finished jobs

    def _ask_ended(self, before: str) -> None:
        page = read_page(ENDED, page_size(PAGE_JOBS), before, reverse=True)
        self._exchange.ask_kvs(page, EndedPage(self._number))

    def _add_ended(self, response: Response) -> None:
        page = page_in(response)
        jobs = [read_ended(key, value) for key, value in page.items]
        is_last = page.is_last(page_size(PAGE_JOBS))
        self._finished.fill(jobs, is_last=is_last)
        if not is_last:
            self._ask_ended(page.keys[-1])
