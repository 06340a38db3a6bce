"""Following the jobs: the job manager's journal, and the eventlogs of before.

The journal is opened first and the eventlogs are read once it is; what it tells meanwhile waits,
and what was in an eventlog already is skipped. When the journal ends, because the job manager is
gone, it is opened again as soon as there is another one, and the eventlogs of all jobs not known to
be inactive are read again. What nobody tells the end of is tried again, less and less often.
"""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.cores.job_index import Ended
from flux_trio.cores.job_list.exchange import Exchange
from flux_trio.cores.job_list.finished import Finished
from flux_trio.cores.job_list.records import JournalGap, Records, ended_of
from flux_trio.cores.job_list.scan import Scan, ScanStep
from flux_trio.cores.turns import ClearTimer, Log, SetTimer
from flux_trio.formats import Event
from flux_trio.messages import Errno, FluxError, Level, Response, expect_payload, topics
from flux_trio.protocols import InvalidTransition, JobEvent

_CLEAN: Final = JobEvent.CLEAN.value

RETRY_S: Final = 1.0  # between the first two attempts to open the journal, then twice as long
RETRY_S_MAX: Final = 64.0


class JournalBatch(msgspec.Struct):
    """A job-manager.events-journal response: id, place, event; place -1 is of no eventlog.

    `ended` is about the jobs that the events end.
    """

    events: list[tuple[int, int, Event]]
    ended: list[Ended] = []


class Follower:
    """Keeps the jobs up to date; `ready` once every active job has been read."""

    def __init__(self, exchange: Exchange, records: Records, finished: Finished) -> None:
        self._exchange = exchange
        self._records = records
        self._finished = finished
        self._scan = Scan(exchange, records, finished, self._scanned)
        self._matchtag = 0  # of the journal
        self._begun = False  # whether the journal has told anything
        self._waits = False  # whether the timer is set for the next attempt
        self._retry_s = RETRY_S
        self._held: list[JournalBatch] = []  # what it told while eventlogs are read
        self.ready = False
        self.hindrance: FluxError | None = None  # the journal has ended, and why

    def scanned(self, step: ScanStep, response: Response) -> None:
        """An answer for the reading of jobs."""
        self._scan.take(step, response)

    def open(self) -> None:
        """Ask for the journal, unless the eventlogs are still being read for the last one."""
        self._waits = False
        if self._scan.running:
            self._retry()
        else:
            self._matchtag = self._exchange.ask_stream(topics.JOB_JOURNAL, {}, self._journal)

    def manager_is_back(self) -> None:
        """Do not wait any longer."""
        if self._waits:
            self._exchange.send(ClearTimer(topics.JOB_JOURNAL))
            self.open()

    def _journal(self, response: Response) -> None:
        if response.errnum:
            self._lost(FluxError(response.errnum, response.error_text))
            return
        try:
            self._take(expect_payload(response, JournalBatch))
        except FluxError as error:
            self._lost(error)
        except (InvalidTransition, JournalGap) as error:
            self._lost(FluxError(Errno.EPROTO, str(error)))

    def _take(self, batch: JournalBatch) -> None:
        if not self._begun:  # from here on nothing is missed
            self._begun = True
            self.hindrance = None
            self._retry_s = RETRY_S
            self._scan.start()
        if self._scan.running:
            self._held.append(batch)
        else:
            self._apply(batch)

    def _apply(self, batch: JournalBatch) -> None:
        records, over = self._records, self._scan.over
        ended = {job.id: job for job in batch.ended}
        for jobid, place, event in batch.events:
            if jobid in over:
                continue  # its eventlog has been read to the end
            if place < 0:
                records.annotate(jobid, (event.context or {}).get("annotations", {}))
                continue
            if place and jobid not in records.jobs:
                self._scan.look_at(jobid)  # it may have ended before active jobs were read
                continue
            records.take(jobid, place, event)
            if event.name == _CLEAN:
                self._finished.add(ended.get(jobid) or ended_of(records.jobs[jobid]))

    def _scanned(self) -> None:
        held, self._held = self._held, []
        self._records.sort()
        self.ready = True
        try:
            for batch in held:
                self._apply(batch)
        except (InvalidTransition, JournalGap) as error:
            self._lost(FluxError(Errno.EPROTO, str(error)))

    def _lost(self, reason: FluxError) -> None:
        if self.hindrance is None:
            self._exchange.send(Log(Level.WARNING, f"the journal of jobs has ended: {reason}"))
        self.hindrance = reason
        self._exchange.hang_up(self._matchtag)
        self._begun = False
        self._retry()

    def _retry(self) -> None:
        self._waits = True
        self._exchange.send(SetTimer(topics.JOB_JOURNAL, self._exchange.now + self._retry_s))
        self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)
