"""Following the jobs: the job manager's journal, and the eventlogs of before.

The journal is opened first and the eventlogs are read once it is; what it tells meanwhile waits,
and what was in an eventlog already is skipped. When the journal ends, because the job manager is
gone, it is opened again as soon as there is another one, and the eventlogs of all jobs not known to
be inactive are read again. What nobody tells the end of is tried again, less and less often.
"""

from __future__ import annotations

from typing import Final

import msgspec

from flux_trio.formats import Event
from flux_trio.messages import FluxError, Level, Response, expect_payload, topics
from flux_trio.protocols import InvalidTransition
from flux_trio.services.job_list.exchange import Exchange
from flux_trio.services.job_list.records import JournalGap, Records
from flux_trio.services.job_list.scan import Scan
from flux_trio.services.turns import ClearTimer, Log, SetTimer

RETRY_S: Final = 1.0  # between the first two attempts to open the journal, then twice as long
RETRY_S_MAX: Final = 64.0


class JournalBatch(msgspec.Struct):
    """A job-manager.events-journal response: id, place, event; place -1 is of no eventlog."""

    events: list[tuple[int, int, Event]]


class Follower:
    """Keeps the records up to date; `ready` once every job has been read."""

    def __init__(self, exchange: Exchange, records: Records) -> None:
        self._exchange = exchange
        self._records = records
        self._scan = Scan(exchange, records, self._scanned)
        self._matchtag = 0  # of the journal
        self._begun = False  # whether the journal has told anything
        self._waits = False  # whether the timer is set for the next attempt
        self._retry_s = RETRY_S
        self._down = False  # whether it has ended, and the log says so
        self._held: list[JournalBatch] = []  # what it told while eventlogs are read
        self.ready = False

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
            self._lost(response.error_text)
            return
        try:
            self._take(expect_payload(response, JournalBatch))
        except (FluxError, InvalidTransition, JournalGap) as error:
            self._lost(str(error))

    def _take(self, batch: JournalBatch) -> None:
        if not self._begun:  # from here on nothing is missed
            self._begun = True
            self._down = False
            self._retry_s = RETRY_S
            self._scan.start()
        if self._scan.running:
            self._held.append(batch)
        else:
            self._apply(batch)

    def _apply(self, batch: JournalBatch) -> None:
        records = self._records
        for jobid, place, event in batch.events:
            if place >= 0:
                records.take(jobid, place, event)
            else:
                records.annotate(jobid, (event.context or {}).get("annotations", {}))

    def _scanned(self) -> None:
        held, self._held = self._held, []
        self._records.sort()
        self.ready = True
        try:
            for batch in held:
                self._apply(batch)
        except (InvalidTransition, JournalGap) as error:
            self._lost(str(error))

    def _lost(self, reason: str) -> None:
        if not self._down:
            self._down = True
            self._exchange.send(Log(Level.WARNING, f"the journal of jobs has ended: {reason}"))
        self._exchange.hang_up(self._matchtag)
        self._begun = False
        self._retry()

    def _retry(self) -> None:
        self._waits = True
        self._exchange.send(SetTimer(topics.JOB_JOURNAL, self._exchange.now + self._retry_s))
        self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)
