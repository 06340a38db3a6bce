"""Restart: all state comes from the eventlogs (RFC 16, Content Consumed/Produced by Job Manager).

The index of active jobs (`cores/job_index.py`) is read page by page. For each job on a page the
eventlog and the jobspec are read, and R if the job holds resources. Finished jobs are only counted,
so the time of a start grows with the number of active jobs only. Requests wait meanwhile.

After a crash between two commits, a finished job may be in the index of active jobs; it is moved to
that of finished jobs.
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.job_index import ENDED, active_key
from flux_trio.cores.job_manager.calls import (
    ActiveRead,
    EndedCount,
    JobsRead,
    LastRead,
    MarkRead,
    ReplayStep,
)
from flux_trio.cores.job_manager.jobs.active_job import BEGINNINGS, ActiveJob, ended
from flux_trio.cores.job_manager.jobs.jobspecs import redacted_text
from flux_trio.cores.job_manager.jobs.ledger import JOB_BYTES, MAX_JOBID_KEY, Ledger
from flux_trio.cores.job_manager.jobs.lost_found import LostAndFound
from flux_trio.cores.kvs_calls import (
    cannot_read,
    count_below,
    count_in,
    look_up_all,
    page_in,
    values_in,
)
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import (
    ActivePage,
    JobsWanted,
    active_in,
    fold_eventlog,
    last_job_in,
    read_active,
    read_last_jobs,
    read_r,
)
from flux_trio.cores.turns import Exit, Log
from flux_trio.formats import EVENTLOG, FormatError, job_key
from flux_trio.messages import Errno, FluxError, Level, Response

_PARTS: Final = (EVENTLOG, "jobspec", "R")


EVENTLOG_SMALL_BYTES: Final = 8192  # an eventlog without many events of users


class Replay(Part):
    """Reads the stored state; `done` is set when everything is read."""

    done: bool

    def __init__(self, ledger: Ledger, lost_found: LostAndFound) -> None:
        self._ledger = ledger
        self._lost_found = lost_found
        self.done = False

    def start(self) -> None:
        """Ask for the first values."""
        self._ledger.ask_kvs(look_up_all([MAX_JOBID_KEY]), MarkRead())

    def step_answered(self, step: ReplayStep, response: Response) -> None:
        """Take the answer of one step; go on with the next."""
        try:
            match step:
                case MarkRead():
                    (purged,) = values_in(response)
                    self._handle_mark(purged)
                case LastRead():
                    self._handle_last(page_in(response).keys)
                case ActiveRead():
                    self._handle_active(active_in(response))
                case JobsRead():
                    self._handle_jobs(step, values_in(response))
                case EndedCount():
                    self._ledger.ninactive = count_in(response)
                    self.done = True
        except FluxError as error:
            if isinstance(step, MarkRead) and error.errnum == Errno.EBADMSG:
                self._go_on_without_mark(error)
            else:
                self._ledger.outbox.send(cannot_read("the jobs", error))

    # --- the steps, in order

    def _handle_mark(self, purged: str | None) -> None:
        self._ledger.used(int(purged or 0))
        self._ledger.ask_kvs(read_last_jobs(), LastRead())

    def _go_on_without_mark(self, error: FluxError) -> None:
        """Go on without the mark if it is damaged; few state directories have one."""
        self._handle_mark(None)
        text = f"the greatest id of a purged job is not known, it may be used again: {error.text}"
        self._ledger.outbox.send(Log(Level.CRIT, text))

    def _handle_last(self, keys: list[str]) -> None:
        jobid = last_job_in(keys)
        if jobid is not None:
            self._ledger.used(jobid)
        self._ask_active("")

    def _handle_active(self, page: ActivePage) -> None:
        if not page.jobids:
            self._ledger.ask_kvs(count_below(ENDED), EndedCount())
            return
        self._ask_jobs(JobsRead(JobsWanted(page.jobids, _PARTS), page.after))

    def _ask_jobs(self, read: JobsRead) -> None:
        self._ledger.ask_kvs(read.jobs.ask(), read)

    def _handle_jobs(self, read: JobsRead, values: list[str | None]) -> None:
        jobs, rest = read.jobs.take(values)
        for jobid, (eventlog, jobspec, r) in jobs:
            if jobid <= self._ledger.last_stored:  # ingest submits jobs that it has stored since
                self._fold(jobid, eventlog, jobspec, r)
        if rest is not None:
            self._ask_jobs(JobsRead(rest, read.after))
        elif read.after is None:
            # counted after the repairs: the commit of this turn comes first
            self._ledger.ask_kvs(count_below(ENDED), EndedCount())
        else:
            self._ask_active(read.after)

    def _ask_active(self, after: str) -> None:
        self._ledger.ask_kvs(read_active(after), ActiveRead())

    # --- one job

    def _fold(self, jobid: int, eventlog: str | None, jobspec: str | None, r: str | None) -> None:
        if eventlog is None:  # a crash came while a refused job was removed
            self._ledger.store([["unlink", active_key(jobid)]])
            return
        try:
            job, events = fold_eventlog(self._ledger.begun, jobid, eventlog)
        except FluxError as error:
            self._lost_found.begin(jobid, job_key(jobid, EVENTLOG), error.text)
            return
        if jobspec is None:
            self._ledger.outbox.send(Exit(f"cannot read {job_key(jobid, 'jobspec')}: no such key"))
            return
        try:
            kept = self._ledger.jobspecs.keep(job.userid, redacted_text(jobspec))
        except FormatError as error:
            jobspec_key = job_key(jobid, "jobspec")
            self._lost_found.begin(jobid, jobspec_key, str(error.at(jobspec_key)))
            return
        active = ActiveJob(job, kept)
        if not job.is_active:
            is_guests = job.userid != self._ledger.owner
            nbytes = JOB_BYTES + len(jobspec) + len(eventlog) if is_guests else 0
            self._ledger.over.append(ended(active, events[-1].timestamp, nbytes))
            return
        active.stamped = events[-1].timestamp
        self._ledger.resume(active, len(jobspec))
        if len(eventlog) > EVENTLOG_SMALL_BYTES:  # it is not known which user has caused it
            size = len(eventlog.encode())
            self._ledger.asked_bytes.put(job.userid, jobid, size)
            self._ledger.posted_bytes.put(job.userid, jobid, size)
        if job.has_resources:
            self._grant_resources(active, r)
            for event in events:
                if event.name in BEGINNINGS:
                    active.note_begin(event, self._ledger.now)

    def _grant_resources(self, job: ActiveJob, r: str | None) -> None:
        """Take R of a job with resources, so that a second grant of them is detected."""
        try:
            job.granted = read_r(job.id, r)
        except (FluxError, FormatError) as error:
            text = f"job {job.id}: what it holds is not known: {error}"
            self._ledger.outbox.send(Log(Level.CRIT, text))
