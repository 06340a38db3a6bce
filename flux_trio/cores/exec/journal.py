"""What the job manager's journal tells: new expirations, and which final releases are durable."""

from __future__ import annotations

from typing import Final

from flux_trio.cores.exec.calls import ExecOutbox, JournalFollowed
from flux_trio.cores.exec.ending import Ends
from flux_trio.cores.exec.job import Jobs, Phase
from flux_trio.cores.exec.manager import Manager
from flux_trio.cores.exec.runs import Runs
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import exec_requests
from flux_trio.messages import Flag, FluxError, Level, Response, topics
from flux_trio.protocols import JobEvent

# New expirations of jobs that were not started yet, latest first to be kept: one is used up when
# its job starts, and jobs that never start must not pile up.
UPDATES_MAX: Final = 10_000


class Journal(Part):
    """The stream of events, from each hello that was accepted on.

    `names` are the events that are asked for.
    """

    _follows: bool
    _updates: dict[int, float]

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
        self._follows = False  # the journal has begun to tell
        self._updates = {}  # see UPDATES_MAX

    def follow(self) -> None:
        """Ask for events from here on; what was before is looked up where it matters."""
        self._follows = False
        wanted = {"allow": {name.value: 1 for name in self._names}}
        self._outbox.ask(topics.JOB_JOURNAL, wanted, JournalFollowed(), Flag.STREAMING)

    def told(self, response: Response) -> None:
        """Take events; the end of the stream is also how a job manager that is gone shows."""
        if response.errnum:
            if self._follows:
                self._manager.gone()
            else:  # it has no journal: nobody tells new expirations, and what is durable
                self._ends.follows_not()
            return
        if not self._follows:
            self._follows = True
            self._ends.follows()
        try:
            payload = exec_requests.JOURNAL.read(response)
        except FluxError as error:
            self._outbox.send(Log(Level.ERR, error.text))
            return
        for jobid, _, event in payload.events:
            self._told(jobid, event.name, event.context)

    def take_expiration(self, jobid: int) -> float | None:
        """The new expiration of a job that is read only now, if there was one."""
        return self._updates.pop(jobid, None)

    def _told(self, jobid: int, name: str, context: exec_requests.JournalContext | None) -> None:
        if context is None:
            return
        if name == JobEvent.RESOURCE_UPDATE and context.expiration is not None:
            self._expiration_changed(jobid, context.expiration)
        elif name == JobEvent.RELEASE and context.final:
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
