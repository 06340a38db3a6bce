"""Following the jobs: the job manager's journal, and the eventlogs of before.

The journal is opened first, and the eventlogs are read after its first response. Events of the
journal wait meanwhile; an event that an eventlog had already is skipped. When the job manager goes,
the journal ends. It is opened again when the next job manager is there, and the eventlogs of all
jobs that may be active are read again. If opening fails, the next attempt comes later each time.
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.job_list.exchange import RETRY_TIMER, Exchange, JournalTold
from flux_trio.cores.job_list.finished import Finished
from flux_trio.cores.job_list.records import JournalGap, Records, ended_of
from flux_trio.cores.job_list.scan import Scan
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import journal
from flux_trio.formats.meanings import Matchtag
from flux_trio.messages import Errno, Flag, FluxError, Level, Response, topics
from flux_trio.protocols import InvalidTransition, JobEvent

_CLEAN: Final = JobEvent.CLEAN.value

RETRY_S: Final = 1.0  # between the first two attempts to open the journal, then twice as long
RETRY_S_MAX: Final = 64.0


class Follower(Part):
    """Keeps the jobs up to date; it is `ready` once every active job has been read."""

    _matchtag: Matchtag
    _begun: bool
    _retry_s: float
    _held: list[journal.Batch]
    ready: bool
    hindrance: tuple[int, str] | None

    def __init__(self, exchange: Exchange, records: Records, finished: Finished) -> None:
        self._exchange = exchange
        self._records = records
        self._finished = finished
        self.scan = Scan(exchange, records, finished, self._scanned)
        self._matchtag = 0  # of the journal
        self._begun = False  # the journal has answered
        self._retry_s = RETRY_S
        self._held = []  # batches that came while eventlogs are read
        self.ready = False
        self.hindrance = None  # errnum and text, once the journal has ended

    def open(self) -> None:
        """Open the journal; try later if the eventlogs for the last one are still being read."""
        if self.scan.running:
            self._retry()
        else:
            self._matchtag = self._exchange.ask(
                topics.JOB_JOURNAL, None, JournalTold(), int(Flag.STREAMING)
            )

    def manager_is_back(self) -> None:
        """Open the journal now rather than at the next attempt."""
        if RETRY_TIMER in self._exchange.timers:
            self._exchange.clear_timer(RETRY_TIMER)
            self.open()

    def told(self, response: Response) -> None:
        """Take a response of the journal: events, or its end."""
        if response.errnum:
            self._lost(FluxError(response.errnum, response.error_text))
            return
        try:
            self._take(journal.BATCH.read(response))
        except FluxError as error:
            self._lost(error)
        except (InvalidTransition, JournalGap) as error:
            self._lost(FluxError(Errno.EPROTO, str(error)))

    def _take(self, batch: journal.Batch) -> None:
        if not self._begun:  # from here on no event is missed
            self._begun = True
            self.hindrance = None
            self._retry_s = RETRY_S
            self.scan.start()
        if self.scan.running:
            self._held.append(batch)
        else:
            self._apply(batch)

    def _apply(self, batch: journal.Batch) -> None:
        records, over = self._records, self.scan.over
        ended = {job.id: job for job in batch.ended}
        for jobid, place, event in batch.events:
            if jobid in over:
                continue  # its eventlog has been read to the end
            if place < 0:
                records.annotate(jobid, journal.annotations_in(event))
                continue
            if place and jobid not in records.jobs:
                self.scan.look_at(jobid)  # it may have ended before active jobs were read
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
        self.hindrance = reason.errnum, reason.text
        self._exchange.calls.close(self._matchtag)
        self._begun = False
        self._retry()

    def _retry(self) -> None:
        self._exchange.set_timer(RETRY_TIMER, self._exchange.now + self._retry_s)
        self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)
