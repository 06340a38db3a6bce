"""Following the jobs: the job manager's journal, and the eventlogs from before the journal.

    asks  job-manager.journal         → an empty response: no event is missed from here on
    asks  kvs: the eventlogs of the jobs in the index (`scan`)
                                      → events, folded when these eventlogs are read
                                      → an error: opened again, later each time

The journal is opened first, and the eventlogs are read after its first response. Events of the
journal wait meanwhile; an event that an eventlog had already is skipped. When the job manager goes,
the journal ends. It is opened again when the next job manager is there, and the eventlogs of all
jobs that may be active are read again. If opening fails, the next attempt comes later each time.

A response with many events is taken in slices, one in each turn, so that other services need not
wait for the whole of it. The rest is taken at once when a request, a purge or the next response of
the journal comes.

The owner may pause this, to see what a list does that is behind the job manager. Batches are held
until it goes on, at the latest when HELD_MAX of them wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flux_trio.cores.job_list.exchange import RETRY_TIMER, SLICE_TIMER, Exchange, JournalFollowed
from flux_trio.cores.job_list.finished import Finished, Place
from flux_trio.cores.job_list.records import JournalGap, Records, ended_of
from flux_trio.cores.job_list.scan import Scan
from flux_trio.cores.pages import page_size
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import journal
from flux_trio.formats import Event
from flux_trio.formats.meanings import JobId, Matchtag
from flux_trio.messages import Errno, Flag, FluxError, Level, Response, topics
from flux_trio.protocols import InvalidTransition, JobEvent

_CLEAN: Final = JobEvent.CLEAN.value

RETRY_S: Final = 1.0  # between the first two attempts to open the journal, then twice as long
RETRY_S_MAX: Final = 64.0

HELD_MAX: Final = 10_000
"""Responses of the journal that a pause holds: a test has few, and one that is forgotten ends."""

SLICE_EVENTS: Final = 2_000  # of a response of the journal, in a turn: about 10 ms


class Follower(Part):
    """Keeps the jobs up to date; it is `ready` once every active job has been read."""

    _matchtag: Matchtag
    _begun: bool
    _retry_s: float
    _held: list[journal.Batch]
    _rest: list[tuple[JobId, int, Event]]
    _ended: dict[JobId, journal.Ended]
    _purged: list[Place]
    paused: bool
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
        self._rest = []  # events of the last batch that later turns take
        self._ended = {}  # of that batch: the jobs that its events end
        self._purged = []  # jobs that were purged while eventlogs are read: a batch may end them
        self.paused = False
        self.ready = False
        self.hindrance = None  # errnum and text, once the journal has ended

    @property
    def is_behind(self) -> bool:
        """Return whether there may be active jobs that were not read yet."""
        return not self._begun or self.scan.running or self.paused

    def pause(self) -> None:
        """Hold what the journal sends from now on."""
        self.catch_up()
        self.paused = True

    def unpause(self) -> None:
        """Take what a pause has held; without a pause nothing changes."""
        self.paused = False
        if not self.scan.running:
            self._take_held()

    def open(self) -> None:
        """Open the journal; try later if the eventlogs for the last one are still being read."""
        if self.scan.running:
            self._retry()
        else:
            self._matchtag = self._exchange.ask(
                topics.JOB_JOURNAL, None, JournalFollowed(), int(Flag.STREAMING)
            )

    def manager_is_back(self) -> None:
        """Open the journal now rather than at the next attempt."""
        if RETRY_TIMER in self._exchange.timers:
            self._exchange.clear_timer(RETRY_TIMER)
            self.open()

    def handle_response(self, response: Response) -> None:
        """Take a response of the journal: events, or its end."""
        if not self.catch_up():
            return
        if response.errnum:
            self._lost(FluxError(response.errnum, response.error_text))
            return
        try:
            self._add_batch(journal.BATCH.read(response))
        except FluxError as error:
            self._lost(error)

    def _add_batch(self, batch: journal.Batch) -> None:
        if not self._begun:  # from here on no event is missed
            self._begun = True
            self.hindrance = None
            self._retry_s = RETRY_S
            self.scan.start()
        if not (self.scan.running or self.paused):
            self._apply(batch)
            return
        self._held.append(batch)
        if self.paused and len(self._held) > HELD_MAX:
            text = f"the pause of job-list ends: it has held {HELD_MAX} responses"
            self._exchange.send(Log(Level.WARNING, text))
            self.unpause()

    def go_on(self) -> None:
        """Take the next slice of the events that the journal has sent."""
        self._apply_some(page_size(SLICE_EVENTS))

    def catch_up(self) -> bool:
        """Take all events that the journal has sent; return False if that has ended the journal."""
        if not self._rest:
            return True
        self._exchange.clear_timer(SLICE_TIMER)
        return self._apply_some(len(self._rest))

    def _apply(self, batch: journal.Batch) -> bool:
        """Take a slice of `batch`; return False if that has ended the journal."""
        self._rest = batch.events
        self._ended = {job.id: job for job in batch.ended}
        return self._apply_some(page_size(SLICE_EVENTS))

    def _apply_some(self, count: int) -> bool:
        """Take `count` events; an event that cannot follow ends the journal: return False."""
        events, self._rest = self._rest[:count], self._rest[count:]
        try:
            self._fold(events)
        except (InvalidTransition, JournalGap) as error:
            self._rest, self._ended = [], {}
            self._lost(FluxError(Errno.EPROTO, str(error)))
            return False
        if self._rest:
            self._exchange.set_timer(SLICE_TIMER, self._exchange.now)
        else:
            self._ended = {}
        return True

    def _fold(self, events: list[tuple[JobId, int, Event]]) -> None:
        records, over, ended = self._records, self.scan.over, self._ended
        for jobid, place, event in events:
            if jobid in over:
                continue  # its eventlog has been read to the end
            if place < 0:
                records.annotate(jobid, journal.annotations_in(event))
                continue
            if place and jobid not in records.jobs:
                self.scan.look_at(jobid)  # it may have ended before active jobs were read
                continue
            records.fold_event(jobid, place, event, self._exchange.now)
            if event.name == _CLEAN:
                self._finished.add(ended.get(jobid) or ended_of(records.jobs[jobid]))

    def purge(self, places: Iterable[Place]) -> None:
        """Remove finished jobs, after the events that came before."""
        if self.scan.running or self.paused:
            self._purged += places
            return
        self.catch_up()
        for place in places:
            self._finished.purge(place)

    def _scanned(self) -> None:
        self._records.sort()
        self.ready = True
        if not self.paused:
            self._take_held()

    def _take_held(self) -> None:
        held, self._held = self._held, []
        purged, self._purged = self._purged, []
        for batch in held:
            if not (self.catch_up() and self._apply(batch)):
                return
        if purged:
            self.purge(purged)

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
