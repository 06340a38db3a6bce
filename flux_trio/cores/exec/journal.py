"""Following the job manager's journal: new expirations, and final releases that are durable.

The journal begins only some time after the hello. An update of a job that was started earlier may
be missed. So the eventlogs of such jobs are read when the journal has begun.
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.exec.calls import (
    AGAIN,
    AGAIN_S,
    ExecOutbox,
    ExpirationRead,
    JournalFollowed,
    StoredKey,
)
from flux_trio.cores.exec.ending import Ends
from flux_trio.cores.exec.job import Job, Jobs, Phase
from flux_trio.cores.exec.manager import Manager
from flux_trio.cores.exec.runs import Runs
from flux_trio.cores.kvs_calls import look_up
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import journal, rfc21
from flux_trio.formats import Event, FormatError, format_fluid, job_key
from flux_trio.formats.meanings import JobId, Time
from flux_trio.messages import Errno, Flag, FluxError, Level, Response, topics
from flux_trio.protocols import JobEvent

# New expirations that are kept for jobs that have not started, the latest ones. A job that starts
# uses its own up; the bound is for jobs that never start.
UPDATES_MAX: Final = 10_000


class Journal(Part):
    """The stream of events with `names`; it begins when the job manager accepts the hello."""

    _follows: bool
    _is_refused: bool
    _updates: dict[JobId, Time]
    _early: dict[JobId, None]

    def __init__(
        self,
        outbox: ExecOutbox,
        jobs: Jobs,
        manager: Manager,
        runs: Runs,
        ends: Ends,
        names: list[JobEvent],
    ) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self._manager = manager
        self._runs = runs
        self._ends = ends
        self._names = names
        self._follows = False  # the journal has answered
        self._is_refused = False  # a full inbox has refused the request
        self._updates = {}  # see UPDATES_MAX
        self._early = {}  # jobs whose start came before the journal had begun

    def follow(self) -> None:
        """Ask for events from now on; earlier events are looked up where they matter.

        An earlier journal has ended: with its job manager, or by this service's own disconnect.
        """
        calls = self._outbox.calls
        for matchtag in [tag for tag, call in calls.items() if call == JournalFollowed()]:
            calls.close(matchtag)
        self._follows = self._is_refused = False
        self._early.clear()
        self._ask()

    def _ask(self) -> None:
        wanted = journal.FOLLOW.write(journal.Follow({name.value: 1 for name in self._names}))
        self._outbox.ask(topics.JOB_JOURNAL, wanted, JournalFollowed(), Flag.STREAMING)

    def handle_response(self, response: Response) -> None:
        """Take events, or the end of the stream: then the job manager is gone."""
        if response.errnum:
            if self._follows:
                self._manager.gone()
            elif response.errnum == Errno.EAGAIN:
                self._is_refused = True
                self._outbox.set_timer(AGAIN, self._outbox.now + AGAIN_S)
            else:  # it has no journal
                self._ends.journal_is_missing()
                self._read_early()
            return
        if not self._follows:
            self._follows = True
            self._ends.journal_begins()
            self._read_early()
        try:
            batch = journal.BATCH.read(response)
        except FluxError as error:
            self._outbox.send(Log(Level.ERR, error.text))
            return
        for jobid, _, event in batch.events:
            try:
                rfc21.check_context(event, event.name)
            except FormatError as error:
                self._outbox.send(Log(Level.ERR, f"{response.topic}: job {jobid}: {error}"))
            else:
                self._handle_event(jobid, event)

    def ask_again(self) -> None:
        """Send the request again that a full inbox has refused, if the job manager is there."""
        if self._is_refused and self._manager.is_attached:
            self._is_refused = False
            self._ask()

    def taken(self, job: Job) -> None:
        """Read the eventlog of a job that runs, at a start request, once no event can be missed."""
        if not self._follows:
            self._early[job.id] = None
        elif job.phase is Phase.RUNNING:
            self._read_eventlog(job)

    def eventlog_asked(self, job: Job) -> None:
        """Note that the eventlog of a job that is prepared is read now, which may be enough."""
        if self._follows:
            self._early.pop(job.id, None)

    def began(self, job: Job) -> None:
        """Read the eventlog of a job that begins to run, if its start came before the journal."""
        if self._follows and job.id in self._early:
            del self._early[job.id]
            if job.phase is Phase.RUNNING:
                self._read_eventlog(job)

    def _read_early(self) -> None:
        """Read the eventlogs of the early jobs that run; others are read when they begin."""
        early, self._early = self._early, {}
        for jobid in early:
            job = self._jobs.get(jobid)
            if job is not None and job.phase is Phase.PREPARING:
                self._early[jobid] = None
            elif job is not None and job.phase is Phase.RUNNING:
                self._read_eventlog(job)

    def _read_eventlog(self, job: Job) -> None:
        """Read whether the expiration has changed, and whether the job has a fatal exception.

        The job manager may have stored such an event and ended before it sent the event.
        """
        job.is_told = False
        self._outbox.ask_kvs(
            look_up(job_key(job.id, StoredKey.EVENTLOG.value)), ExpirationRead(job.id)
        )

    def pop_expiration(self, jobid: int) -> float | None:
        """Return the new expiration of a job that starts now; None if it has not changed."""
        return self._updates.pop(jobid, None)

    def _handle_event(self, jobid: int, event: Event) -> None:
        if event.name == JobEvent.RESOURCE_UPDATE:
            self.expiration_changed(jobid, rfc21.expiration_in(event.context or {}, 0.0))
        elif rfc21.is_final_release(event.name, event.context):
            self._ends.confirmed(jobid)

    def expiration_changed(self, jobid: int, expiration: float) -> None:
        """Take the new expiration of a job, which may run or not have started yet."""
        job = self._jobs.get(jobid)
        if job is None or job.resources is None:
            self._updates[jobid] = expiration
            if len(self._updates) > UPDATES_MAX:
                del self._updates[next(iter(self._updates))]
            return
        job.expiration, job.is_told = expiration, True
        if job.phase is Phase.RUNNING:
            name = format_fluid(jobid, "f58")
            self._outbox.send(Log(Level.DEBUG, f"updated expiration of {name} to {expiration}"))
            self._runs.arm(job)
