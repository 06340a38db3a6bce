"""Following the job manager's journal: new expirations, and final releases that are durable."""

from __future__ import annotations

from typing import Final

from flux_trio.cores.exec.calls import ExecOutbox, JournalFollowed
from flux_trio.cores.exec.ending import Ends
from flux_trio.cores.exec.job import Jobs, Phase
from flux_trio.cores.exec.manager import Manager
from flux_trio.cores.exec.runs import Runs
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import journal, rfc21
from flux_trio.formats import Event, FormatError
from flux_trio.formats.meanings import JobId, Time
from flux_trio.messages import Flag, FluxError, Level, Response, topics
from flux_trio.protocols import JobEvent

# New expirations that are kept for jobs that have not started, the latest ones. A job that starts
# uses its own up; the bound is for jobs that never start.
UPDATES_MAX: Final = 10_000


class Journal(Part):
    """The stream of events with `names`; it begins when the job manager accepts the hello."""

    _follows: bool
    _updates: dict[JobId, Time]

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
        self._updates = {}  # see UPDATES_MAX

    def follow(self) -> None:
        """Ask for events from now on; earlier events are looked up where they matter."""
        self._follows = False
        wanted = journal.FOLLOW.write(journal.Follow({name.value: 1 for name in self._names}))
        self._outbox.ask(topics.JOB_JOURNAL, wanted, JournalFollowed(), Flag.STREAMING)

    def told(self, response: Response) -> None:
        """Take events, or the end of the stream: then the job manager is gone."""
        if response.errnum:
            if self._follows:
                self._manager.gone()
            else:  # it has no journal
                self._ends.journal_is_missing()
            return
        if not self._follows:
            self._follows = True
            self._ends.journal_begins()
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
                self._told(jobid, event)

    def take_expiration(self, jobid: int) -> float | None:
        """Return the new expiration of a job that starts now; None if it has not changed."""
        return self._updates.pop(jobid, None)

    def _told(self, jobid: int, event: Event) -> None:
        if event.name == JobEvent.RESOURCE_UPDATE:
            self._expiration_changed(jobid, rfc21.expiration_in(event.context or {}, 0.0))
        elif rfc21.is_final_release(event.name, event.context):
            self._ends.confirmed(jobid)

    def _expiration_changed(self, jobid: int, expiration: float) -> None:
        job = self._jobs.get(jobid)
        if job is None or job.resources is None:
            self._updates[jobid] = expiration
            if len(self._updates) > UPDATES_MAX:
                del self._updates[next(iter(self._updates))]
            return
        job.expiration = expiration
        if job.phase is Phase.RUNNING:
            self._runs.arm(job)
