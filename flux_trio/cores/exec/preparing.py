"""Reading what the KVS has of a job before it starts, or of a job that runs already.

For a job that was allocated after the hello, R and the jobspec are enough. For an older job, and
for a job to reattach, what an earlier exec service has left and the eventlog are read too: the
eventlog last, since by then the journal has mostly begun, and it need not be read again.
"""

from __future__ import annotations

from typing import Final, assert_never

import msgspec

from flux_trio.cores.exec.calls import UNREAD, UNREAD_S, ExecOutbox, KeyRead, StoredKey
from flux_trio.cores.exec.guest import Guests
from flux_trio.cores.exec.job import Job, Jobs, Phase, completed_status
from flux_trio.cores.exec.journal import Journal
from flux_trio.cores.exec.manager import Manager
from flux_trio.cores.exec.runs import Runs
from flux_trio.cores.exec.simulation import simulation_of
from flux_trio.cores.exec.starts import Starts
from flux_trio.cores.kvs_calls import look_up, value_in
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.formats import FormatError, Idset, ResourceSet, job_key, parse_r, ranks_named
from flux_trio.messages import FluxError, Level, Response

EVENTLOGS: Final = "the job's eventlogs"
ENVIRONMENT: Final = "the job's environment"


class Preparing(Part):
    """Reads the values of a job, then lets it begin; with `simulate` every job is simulated."""

    _wait_s: float

    def __init__(
        self,
        outbox: ExecOutbox,
        jobs: Jobs,
        starts: Starts,
        manager: Manager,
        journal: Journal,
        runs: Runs,
        guests: Guests,
        *,
        simulate: bool,
    ) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self._starts = starts
        self._manager = manager
        self._journal = journal
        self._runs = runs
        self._guests = guests
        self._simulate = simulate
        self._wait_s = UNREAD_S[0]  # until R that was refused is asked for again

    def prepare(self, job: Job) -> None:
        """Read R, which decides what else is read, unless it was in the start request."""
        if job.given is None:
            self._look_up(job, StoredKey.R)
        else:
            self._read_on(job, job.given)

    def _look_up(self, job: Job, key: StoredKey) -> None:
        lookup = look_up(job_key(job.id, key.value))
        job.lookups.add(self._outbox.ask_kvs(lookup, KeyRead(job.id, key)))

    def key_read(self, call: KeyRead, response: Response) -> None:
        """Take the value of a key, or its absence; an error of the KVS fails the job.

        R is asked for until the KVS answers: without it no release can name the ranks of the job.
        """
        job = self._jobs.get(call.id)
        if job is None or response.matchtag not in job.lookups:
            return  # it was for a job manager that is gone
        job.lookups.remove(response.matchtag)
        if job.phase is not Phase.PREPARING:
            return  # the job failed meanwhile
        try:
            text = value_in(response)
        except FluxError as error:
            text = f"cannot read {call.key.value}: {error.text}"
            if call.key is StoredKey.R:
                self._r_is_refused(job, text)
            else:
                self._starts.fail(job, text)
            return
        if call.key is not StoredKey.R:
            self._read_past(job, call.key, text or "")
        elif text is not None:
            self._read_resources(job, text)
        else:
            self._end(job, "the job has no R")

    def _r_is_refused(self, job: Job, text: str) -> None:
        """Ask at once the first time; then fail the job, and ask on for what it is to release.

        A value that is damaged may stay so: each time twice as much time passes, up to a minute.
        """
        if not job.is_refused:
            job.is_refused = True
            self._wait_s = UNREAD_S[0]
            self._look_up(job, StoredKey.R)
        else:
            if not job.killed:
                self._starts.exception(job, text)
            self._outbox.set_timer(UNREAD, self._outbox.now + self._wait_s)

    def ask_again(self) -> None:
        """Ask for R of the jobs for which the KVS has refused it."""
        self._wait_s = min(2 * self._wait_s, UNREAD_S[1])
        for job in self._jobs.by_id.values():
            if job.is_refused and job.resources is None and not job.lookups:
                self._look_up(job, StoredKey.R)

    def read_ranks(self, job: Job, wrong: str) -> None:
        """Fail a job whose start request is `wrong`; R is read to name what is released."""
        job.is_wrong = True
        self._starts.exception(job, wrong)
        self.prepare(job)

    def _end(self, job: Job, note: str, ranks: Idset | None = None) -> None:
        """End a job without a readable R, which holds `ranks` as far as it can be told."""
        if not job.killed:
            self._starts.exception(job, note)
        self._starts.release(job, ranks)

    def _read_resources(self, job: Job, text: str) -> None:
        try:
            resources = parse_r(text)
        except FormatError as error:
            self._end(job, str(error), ranks_named(text))
        else:
            self._read_on(job, resources)

    def _read_on(self, job: Job, resources: ResourceSet) -> None:
        job.resources = resources
        if job.is_wrong:
            self._starts.release(job)
            return
        try:
            job.simulation = simulation_of(job.jobspec, self._simulate)
        except FormatError as error:
            self._starts.fail(job, str(error))
            return
        update = self._journal.pop_expiration(job.id)
        job.expiration = job.resources.expiration if update is None else update
        job.is_new = not job.reattach and self._manager.is_later(job.resources.starttime)
        is_real, has_guest = job.simulation is None, job.guest is not None
        if is_real:
            self._look_up(job, StoredKey.JOBSPEC)
        if not job.is_new and (is_real or (self._guests.is_named and not has_guest)):
            self._look_up(job, StoredKey.EXEC_LOG)
        if not job.is_new and is_real and not has_guest:
            self._look_up(job, StoredKey.PLACES)
        self._go_on(job)

    def _go_on(self, job: Job) -> None:
        """Read the eventlog once all else is read, or let a new job begin."""
        if job.lookups:
            return
        if job.is_new:
            self._begin(job)
        else:
            self._journal.eventlog_asked(job)
            self._look_up(job, StoredKey.EVENTLOG)

    def _read_past(self, job: Job, key: StoredKey, text: str) -> None:
        try:
            match key:
                case StoredKey.JOBSPEC:
                    job.read_environment(text)
                case StoredKey.EVENTLOG:
                    job.read_eventlog(text)
                case StoredKey.EXEC_LOG:
                    if job.simulation is None:
                        job.status = completed_status(text)
                    if job.guest is None:
                        job.contents.read_log(text)
                case StoredKey.PLACES:
                    job.contents.read_places(text)
                case StoredKey.R:
                    raise AssertionError("R is read first, and alone")
                case _:
                    assert_never(key)
        except (FluxError, FormatError, msgspec.MsgspecError) as error:
            what = ENVIRONMENT if key is StoredKey.JOBSPEC else EVENTLOGS
            self._starts.fail(job, f"{what} cannot be read: {error}")
            return
        if key is StoredKey.EVENTLOG:
            self._begin(job)
        else:
            self._go_on(job)

    def _begin(self, job: Job) -> None:
        if self._guests.is_named:
            self._guests.begin(job)
        self._runs.begin(job)
        self._journal.began(job)

    # What happened to a job that runs

    def expiration_read(self, jobid: int, response: Response) -> None:
        """Take expiration and exceptions from the eventlog of a job that runs or has just ended."""
        job = self._jobs.running(jobid)
        if job is None:
            return
        before, was_killed = job.expiration, job.killed
        try:
            job.read_eventlog(value_in(response) or "")
        except FluxError as error:
            self._outbox.send(Log(Level.ERR, f"{EVENTLOGS} cannot be read: {error}"))
        if job.expiration != before:
            self._runs.arm(job)
        if job.killed and not was_killed:
            self._runs.killed(job)
