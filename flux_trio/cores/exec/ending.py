"""The end of a job: first this service forgets the job, then the shell host may forget it.

The shell host has the only other copy of a job's output and status. It keeps the job until the job
manager has stored the final release: an event that was sent and not stored is lost when the
instance is killed, or when its disk is full.
"""

from __future__ import annotations

from collections.abc import Iterable

from flux_trio.cores.exec.calls import EndRead, ExecOutbox, StoredKey
from flux_trio.cores.exec.guest import Guests
from flux_trio.cores.exec.job import Job, Jobs, Phase, completed_status
from flux_trio.cores.exec.starts import Starts
from flux_trio.cores.exec.vocabulary import ToShell
from flux_trio.cores.kvs_calls import look_up_all, values_in
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import fold_eventlog
from flux_trio.cores.turns import Log
from flux_trio.formats import FormatError, format_fluid, job_key
from flux_trio.formats.meanings import JobId
from flux_trio.messages import FluxError, Level, Response
from flux_trio.protocols import Job as StoredJob
from flux_trio.protocols import JobState
from flux_trio.shell.protocol import Ack


class Ends(Part):
    """Forgets jobs here, and acknowledges them to the shell host, if the instance has one."""

    _unconfirmed: set[JobId]
    _confirms: bool

    def __init__(
        self, outbox: ExecOutbox, jobs: Jobs, starts: Starts, guests: Guests, *, has_shell: bool
    ) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self._starts = starts
        self._guests = guests
        self._has_shell = has_shell
        # Jobs that are forgotten here, and that the shell host keeps until their release is durable
        self._unconfirmed = set()
        self._confirms = True  # a journal tells which releases are durable

    # Forgetting jobs here

    def settle_ended(self) -> None:
        """Forget, at the end of a turn, jobs that have ended."""
        if self._starts.over:
            for jobid in self._starts.pop_ended():
                self.settle(jobid)

    def settle(self, jobid: int) -> None:
        """Forget a job whose final release was sent."""
        job = self._jobs.get(jobid)
        if job is None or job.phase is not Phase.OVER:
            return
        if not self._starts.is_release_sent(job) and not job.is_confirmed:
            return  # the next job manager may ask again
        del self._jobs.by_id[jobid]
        self._starts.forget(jobid)
        self._guests.forget(job)
        if job.simulation is None and self._has_shell:
            self._forgotten(job)

    # Letting the shell host forget them

    def _forgotten(self, job: Job) -> None:
        """Let the shell host forget the job too, at once or when its release is durable."""
        if not job.is_stored:
            return
        if job.is_confirmed or not self._confirms:
            self._acknowledge(job.id)
        else:
            self._unconfirmed.add(job.id)

    def confirmed(self, jobid: int) -> None:
        """Let the shell host forget a job whose final release is durable.

        A stream may have been opened after this service forgot the job, while the eventlog still
        said that the job runs. Now that stream can read the stored output.
        """
        job = self._jobs.get(jobid)
        if job is not None:
            job.is_confirmed = True
            self.settle(jobid)
            return
        if jobid in self._unconfirmed:
            self._unconfirmed.remove(jobid)
            self._acknowledge(jobid)

    def journal_begins(self) -> None:
        """Look up the ends of earlier jobs; the journal tells which later ones are durable."""
        self._confirms = True
        over = [job.id for job in self._jobs.real(Phase.OVER)]
        for jobid in [*sorted(self._unconfirmed), *over]:
            self._look_up_end(jobid)

    def journal_is_missing(self) -> None:
        """Acknowledge all jobs: without a journal no event tells which releases are durable."""
        self._confirms = False
        for jobid in sorted(self._unconfirmed):
            self.confirmed(jobid)

    def acknowledge_again(self, ended: Iterable[int]) -> None:
        """Acknowledge again the jobs whose end is stored: the first Ack was lost."""
        for jobid in ended:
            if self._jobs.get(jobid) is None:
                self._unconfirmed.add(jobid)
                self._look_up_end(jobid)

    def _look_up_end(self, jobid: int) -> None:
        names = (StoredKey.EXEC_LOG.value, StoredKey.EVENTLOG.value)
        self._outbox.ask_kvs(look_up_all([job_key(jobid, name) for name in names]), EndRead(jobid))

    def end_read(self, jobid: int, response: Response) -> None:
        """Acknowledge the job if its output, its status and its final release are stored.

        flux-core can end a job without that release; nobody asks for an inactive job again.
        """
        try:
            exec_log, eventlog = values_in(response)
            status = completed_status(exec_log or "")
            if eventlog is None or status is None:
                return
            stored, _ = fold_eventlog(StoredJob, jobid, eventlog)
            if stored.released or stored.state is JobState.INACTIVE:
                self.confirmed(jobid)
        except (FluxError, FormatError) as error:
            name = format_fluid(jobid, "f58")
            self._outbox.send(Log(Level.ERR, f"job {name}: its end cannot be read: {error}"))

    def _acknowledge(self, jobid: int) -> None:
        """Let the shell host forget the job."""
        self._outbox.send(ToShell(Ack(jobid)))
