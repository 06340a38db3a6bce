"""Housekeeping: a command runs on the ranks of a job that has ended, before they are free.

The command of `[job-manager.housekeeping]` runs once for each rank. Where the edition frees in
parts, the event free hands the resources over to housekeeping, and the job goes on to its end: the
scheduler gets a sched.free when all ranks are done, or several ones as `release-after` says. In
other editions the job holds its resources until all ranks are done. A rank on which the command
fails is drained before it is freed, unless the operator has sent it a signal.

What is held for jobs that are over is stored (`KEY`), so that it survives a restart: then the
command runs once more where it had not ended. Left out: how the commands run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import msgspec

from flux_trio.cores.job_manager.calls import (
    Housekeep,
    HousekeepingEnded,
    HousekeepingRead,
    HousekeepingSignal,
    RankDrained,
)
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.job_manager.queues.queues import Queues
from flux_trio.cores.kvs_calls import look_up_all, values_in
from flux_trio.cores.state import Part
from flux_trio.cores.turns import Log
from flux_trio.editions import flux, job_requests
from flux_trio.editions import housekeeping as payloads
from flux_trio.editions.rfc27 import HeldJob
from flux_trio.formats import FormatError, Idset, ResourceSet, format_fluid, parse_duration
from flux_trio.formats.meanings import JobId, Stamp, Time
from flux_trio.messages import Errno, FluxError, Level, Request, Response, respond, topics
from flux_trio.protocols import JobEvent, LinkState

KEY: Final = "housekeeping.job-manager"
_SIGTERM: Final = 15


class Run(msgspec.Struct):
    """What housekeeping holds of a job."""

    userid: int
    priority: int
    t_submit: Stamp
    t_start: Stamp
    held: ResourceSet  # what is not freed yet
    pending: Idset  # ranks whose command has not ended
    free: Idset = Idset()
    signaled: Idset = Idset()  # ranks whose command the operator has sent a signal
    due: Time | None = None  # when ranks that are done are freed without the others


class Scheduler(Protocol):
    """What housekeeping needs of the conversation with the scheduler."""

    @property
    def link(self) -> LinkState: ...

    def free_part(self, jobid: int, part: ResourceSet, *, final: bool) -> None:
        """Send sched.free."""

    def let_go(self, jobid: int) -> None:
        """Forget what a job held."""

    def resume(self, jobid: int) -> None:
        """Take up what a job held before a restart."""


class Housekeeping(Part):
    """The runs by job id, in the order of their begin."""

    runs: dict[JobId, Run]
    over: set[JobId]  # jobs that still hold what housekeeping is done with
    restored: bool

    def __init__(self, ledger: Ledger, queues: Queues, scheduler: Scheduler) -> None:
        self._ledger = ledger
        self._queues = queues
        self._scheduler = scheduler
        self._frees_in_parts = ledger.edition.frees_in_parts
        self.runs = {}
        self.over = set()
        self.restored = not self._frees_in_parts
        ledger.listen(JobEvent.CLEAN, lambda job, _event: self.over.discard(job.id))

    @property
    def _command(self) -> tuple[str, ...]:
        table = self._queues.config.job_manager.housekeeping
        return tuple(table.command or ()) if table is not None else ()

    @property
    def _release_after(self) -> float | None:
        table = self._queues.config.job_manager.housekeeping
        text = None if table is None else table.release_after
        return None if text is None else parse_duration(text)

    @property
    def owed(self) -> dict[JobId, Run]:
        """The runs whose jobs have had their event free: a new scheduler must be told of them."""
        return self.runs if self._frees_in_parts else {}

    # --- jobs

    def keeps(self, job: ActiveJob) -> bool:
        """Return whether housekeeping holds, or now takes over, what `job` holds."""
        if job.id in self.runs:
            return True
        if job.granted is None or job.id in self.over or not self._command:
            return False
        ranks = job.granted.ranks
        now = self._ledger.now
        self.runs[job.id] = run = Run(
            job.userid, job.priority, job.t_submit, now, job.granted.with_times(0.0, 0.0), ranks
        )
        self._run(job.id, run)
        if self._frees_in_parts:
            self._store()
            self._ledger.log_now(job, JobEvent.FREE)
        return True

    def _run(self, jobid: int, run: Run, *, again: bool = False) -> None:
        ranks = str(run.held.ranks | run.free)
        action = Housekeep(jobid, run.userid, self._command, ranks, tuple(run.pending), again)
        self._ledger.outbox.send(action)

    def ended(self, message: HousekeepingEnded) -> None:
        """Take the end of a command; a rank on which it has failed is drained."""
        jobid, rank = message.jobid, message.rank
        run = self.runs.get(jobid)
        if run is None or rank not in run.pending:
            return
        if not message.failure:
            self._done(run, rank)
            return
        host = run.held.hostname(rank)
        text = f"housekeeping: {host} (rank {rank}) {_name(jobid)}: {message.failure}"
        self._ledger.outbox.send(Log(Level.ERR, text))
        if rank in run.signaled:
            self._done(run, rank)
            return
        reason = f"housekeeping failed for job {_name(jobid)}"
        payload = flux.DRAIN.write(flux.Drain(str(rank), reason, "update"))
        self._ledger.ask(topics.RESOURCE_DRAIN, payload, RankDrained(jobid, rank))

    def drained(self, call: RankDrained, response: Response) -> None:
        """Take the answer of the resource service; without it, the rank is free undrained."""
        if response.errnum:
            error = FluxError(response.errnum, response.error_text)
            self._ledger.outbox.send(Log(Level.ERR, f"cannot drain {call.rank}: {error}"))
        if (run := self.runs.get(call.jobid)) is not None:
            self._done(run, call.rank)

    def _done(self, run: Run, rank: int) -> None:
        run.pending -= Idset.of([rank])
        after = self._release_after
        if after and run.due is None and run.pending:
            run.due = self._ledger.now + after
            self._set_timer()
        self.release()

    def release(self) -> None:
        """Free what is done and due, if the scheduler can be told."""
        for jobid, run in list(self.runs.items()):
            if not self._frees_in_parts:
                self._release_job(jobid, run)
            elif self._scheduler.link == LinkState.READY and (ranks := self._due(run)):
                part = run.held.restrict(ranks)
                final = not run.pending
                self._scheduler.free_part(jobid, part, final=final)
                run.held, run.free = run.held.without_ranks(ranks), run.free | ranks
                if final:
                    del self.runs[jobid]
                self._store()
        self._set_timer()

    def _release_job(self, jobid: int, run: Run) -> None:
        if not run.pending:
            del self.runs[jobid]
            if (job := self._ledger.jobs.get(jobid)) is not None:
                self.over.add(jobid)
                self._ledger.dirty[jobid] = job

    def _due(self, run: Run) -> Idset:
        is_due = run.due is not None and run.due <= self._ledger.now
        if not run.pending or is_due or self._release_after == 0:
            return run.held.ranks - run.pending
        return Idset()

    def _set_timer(self) -> None:
        later = [
            run.due
            for run in self.runs.values()
            if run.due is not None and run.due > self._ledger.now and run.pending
        ]
        if later:
            self._ledger.outbox.set_timer("housekeeping", min(later))

    # --- the scheduler

    def told(self, partial_ok: bool) -> list[HeldJob]:
        """Return what hello tells a scheduler.

        A scheduler that does not understand `free` cannot be told of a job that is freed in part:
        the commands for it are ended, and what it held is let go.
        """
        if not partial_ok:
            for jobid, run in list(self.owed.items()):
                if run.free:
                    text = "the scheduler does not support partially released resources"
                    self._ledger.outbox.send(
                        Log(Level.ERR, f"housekeeping of {_name(jobid)} is ended: {text}")
                    )
                    self._signal(jobid, run.pending, _SIGTERM)
                    del self.runs[jobid]
                    self._scheduler.let_go(jobid)
                    self._store()
        return [
            HeldJob(jobid, run.priority, run.userid, run.t_submit, run.free or None)
            for jobid, run in self.owed.items()
        ]

    def held(self) -> Iterator[tuple[JobId, ResourceSet]]:
        """Yield what is held for jobs that have had their event free."""
        for jobid, run in self.owed.items():
            yield jobid, run.held

    # --- requests

    def kill(self, request: Request) -> None:
        """job-manager.housekeeping-kill: send a signal to the commands, as flux-core does."""
        asked = payloads.KILL.read(request)
        try:
            wanted = None if asked.ranks is None else Idset.parse(asked.ranks)
        except FormatError as error:
            raise FluxError(Errno.EINVAL, str(error.at("ranks"))) from None
        for jobid, run in self.runs.items():
            if asked.jobid in (None, job_requests.ANY_JOB, jobid):
                ranks = run.pending if wanted is None else run.pending & wanted
                run.signaled |= ranks
                self._signal(jobid, ranks, asked.signum)
        self._ledger.send(respond(request))

    def _signal(self, jobid: int, ranks: Idset, signum: int) -> None:
        if ranks:
            self._ledger.outbox.send(HousekeepingSignal(jobid, tuple(ranks), signum))

    def stats(self) -> payloads.Housekeeping:
        """Return what flux-core's `housekeeping list` reads."""
        running = {
            _name(jobid): payloads.Running(run.t_start, str(run.pending), str(run.held.ranks))
            for jobid, run in self.runs.items()
        }
        return payloads.Housekeeping(running)

    # --- a restart

    def start(self) -> None:
        """Ask for what was held before this start."""
        if not self.restored:
            self._ledger.ask_kvs(look_up_all([KEY]), HousekeepingRead())

    def read(self, response: Response) -> None:
        """Take what was held; damage is logged, and what it held is free."""
        self.restored = True
        try:
            (text,) = values_in(response)
            self.runs = {each.id: _run_of(each) for each in payloads.read_kept(text)}
        except (FluxError, FormatError, msgspec.MsgspecError) as error:
            self._ledger.outbox.send(Log(Level.CRIT, f"{KEY} cannot be read: {error}"))

    def resumed(self) -> None:
        """Go on where the commands had not ended."""
        for jobid, run in self.owed.items():
            self._scheduler.resume(jobid)
            if not self._command:
                run.pending = Idset()
            elif run.pending:
                self._run(jobid, run, again=True)

    def _store(self) -> None:
        kept = [
            payloads.KeptRun(
                jobid,
                run.userid,
                run.priority,
                run.t_submit,
                run.t_start,
                run.held.to_json(),
                str(run.pending),
                str(run.free),
            )
            for jobid, run in self.runs.items()
        ]
        self._ledger.store([["put", KEY, payloads.write_kept(kept)]])


def _run_of(kept: payloads.KeptRun) -> Run:
    return Run(
        kept.userid,
        kept.priority,
        kept.t_submit,
        kept.t_start,
        ResourceSet.parse(kept.R),
        Idset.parse(kept.pending),
        Idset.parse(kept.free),
    )


def _name(jobid: int) -> str:
    return format_fluid(jobid, "f58")
