"""perilog: a prolog before each job starts, an epilog before its resources are freed.

The commands are `[job-manager.prolog]` and `[job-manager.epilog]`, as in
flux-config-job-manager(5). They run on this machine as the instance owner: once for each job, or
with `per-rank` once for each of its ranks. The prolog holds the start of the job, the epilog its
resources. The epilog begins when no process of the job runs any more; a job that had neither a
prolog nor a process has no epilog. A prolog that fails ends the job; an epilog that fails is only
noted.

After a restart of the job manager, an open prolog or epilog is run again; if it is no longer
configured, it is finished at once. If it is taken out of the configuration while it runs, an epilog
is ended and a prolog goes on to its end. Where jobs are simulated, prologs and epilogs are, too.

Left out: `exec.imp`, and scripts that a service manager runs.
"""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, Final

import trio

from flux_trio import jobtap
from flux_trio.clock import Durations
from flux_trio.editions import flux_kvs
from flux_trio.editions.kvs import Lookup
from flux_trio.editions.rfc21 import is_fatal, is_final_release
from flux_trio.formats import (
    EVENTLOG,
    FormatError,
    Hostlist,
    Idset,
    ResourceSet,
    format_fluid,
    job_key,
)
from flux_trio.jobtap.builtins.perilog_config import Procedure, read_procedures
from flux_trio.jobtap.builtins.perilog_process import (
    JOB_ID,
    OWNER,
    PretendedProcess,
    kill_leftovers,
)
from flux_trio.jobtap.builtins.perilog_run import Run
from flux_trio.messages import topics
from flux_trio.process.console import id_form
from flux_trio.process.local import Ending, Process, open_process, run_to_end
from flux_trio.protocols import JobEvent

PROLOG: Final = "job-manager.prolog"
EPILOG: Final = "job-manager.epilog"
ROOT: Final = Idset.of([0])  # the rank of a command that is not per-rank
CANNOT_START: Final = 127 << 8  # a shell's exit code for this
RESOURCE_RETRY_S: Final = 1.0  # between two calls of a resource service that is away
RESOURCE_TRIES: Final = 60
LOST: Final = 9  # the status of a prolog that ended with the job manager


class Perilog(jobtap.Plugin):
    """Runs prologs and epilogs, and holds the job meanwhile."""

    name = "perilog"

    def __init__(self) -> None:
        super().__init__()
        self.loaded()  # for conf.update, which comes first

    def loaded(self) -> None:
        """Begin without runs."""
        self._runs: dict[int, Run] = {}  # by job id
        self._taken_up: set[int] = set()  # jobs with a prolog or epilog from before a restart
        self._awaited: set[int] = set()  # jobs whose epilog waits for the end of their processes

    @jobtap.on("conf.update")
    def configure(self, config: jobtap.Config) -> None:
        """Use these commands for the next prolog or epilog."""
        try:
            self._procedures = read_procedures(config)
        except FormatError as error:
            raise jobtap.Reject(str(error)) from None
        self._pretends = config.exec.simulate
        if self._procedures.epilog is None:
            for run in self._runs.values():
                if run.what.description == EPILOG:
                    run.canceled.set()

    @jobtap.on("plugin.query")
    def query(self) -> dict[str, Any]:
        """Return the configured commands and those that run."""
        procedures = {"prolog": self._procedures.prolog, "epilog": self._procedures.epilog}
        conf = {name: each.to_json() if each else {} for name, each in procedures.items()}
        runs = {_name(jobid): run for jobid, run in self._runs.items() if not run.is_over}
        return {"conf": conf, "procs": {name: run.to_json() for name, run in runs.items()}}

    # --- when they run

    @jobtap.on("job.new")
    def on_new(self, job: jobtap.Job) -> None:
        """Go on with a prolog or epilog from before a restart; starting it again logs no event.

        If it is not configured any more, it is finished at once, with status 0.
        """
        if job.prologs or job.epilogs:
            self._taken_up.add(job.id)
        if PROLOG in job.prologs:
            job.prolog_start(PROLOG)
        if job.state is jobtap.State.CLEANUP:
            if EPILOG in job.epilogs and self._procedures.epilog is None:
                job.epilog_start(EPILOG)
                job.epilog_finish(EPILOG)
            is_open = PROLOG in job.prologs or EPILOG in job.epilogs
            if is_open or not job.event_posted(JobEvent.EPILOG_START):  # else its epilog is over
                self._wind_up(job)
        elif PROLOG in job.prologs and self._procedures.prolog is not None:
            self._begin(job, self._procedures.prolog)
        elif PROLOG in job.prologs:
            job.prolog_finish(PROLOG)

    @jobtap.on("job.state.run")
    def on_run(self, job: jobtap.Job) -> None:
        """Hold the start while the prolog runs."""
        prolog = self._procedures.prolog
        if prolog is not None and job.id not in self._runs:
            job.prolog_start(PROLOG)
            self._begin(job, prolog)

    @jobtap.on("job.state.cleanup")
    def on_cleanup(self, job: jobtap.Job) -> None:
        """End a prolog that runs; the epilog follows the prolog, or the processes of the job."""
        run = self._runs.get(job.id)
        if run is None or run.is_over:
            self._wind_up(job)
        elif run.what.description == PROLOG and run.what.cancel_on_exception:
            run.canceled.set()

    @jobtap.on("job.event.finish", "job.event.release")
    def on_end(self, job: jobtap.Job, event: jobtap.Event) -> None:
        """Begin the epilog that waits for the end of the job's processes."""
        is_end = event.name == JobEvent.FINISH or is_final_release(event.name, event.context)
        if is_end and job.id in self._awaited:
            self._begin_epilog(job)

    @jobtap.on("job.event.exception")
    def on_exception(self, job: jobtap.Job, event: jobtap.Event) -> None:
        """End an epilog if the configuration asks for it, at the first fatal exception only.

        Later exceptions change nothing (readings: Severity 0 exceptions after the first).
        """
        run = self._runs.get(job.id)
        if run is None or not is_fatal(event.name, event.context) or run.had_exception:
            return
        if run.what.description == EPILOG and run.what.cancel_on_exception:
            run.canceled.set()

    @jobtap.on("job.destroy")
    def forget(self, job: jobtap.Job) -> None:
        run = self._runs.pop(job.id, None)
        if run is not None:
            run.is_known.set()
        self._taken_up.discard(job.id)
        self._awaited.discard(job.id)

    @jobtap.on("job.event.prolog-start", "job.event.epilog-start")
    def on_start(self, job: jobtap.Job, event: jobtap.Event) -> None:
        """Let the run begin: its start has been logged."""
        run = self._runs.get(job.id)
        if run is not None and (event.context or {}).get("description") == run.what.description:
            run.is_known.set()

    # --- their order

    def _wind_up(self, job: jobtap.Job) -> None:
        """Start the epilog if it is due: the job has ended and no prolog runs."""
        run = self._runs.get(job.id)
        is_due = self._procedures.epilog is not None and not self._had_epilog(job)
        if is_due:
            job.subscribe()
            job.epilog_start(EPILOG)
        if PROLOG in job.prologs and not (run is not None and run.finish_posted):
            job.prolog_finish(PROLOG, LOST if run is None else run.worst.status)
        if is_due and (self._has_ended(job) or not job.start_requested):
            self._begin_epilog(job)
        elif is_due:
            self._awaited.add(job.id)

    def _has_ended(self, job: jobtap.Job) -> bool:
        """Return whether the job has ended; a release before a restart counts as final."""
        was_released = job.id in self._taken_up and job.event_posted(JobEvent.RELEASE)
        return was_released or job.event_posted(JobEvent.FINISH)

    def _had_epilog(self, job: jobtap.Job) -> bool:
        """Return whether the job needs no epilog.

        That is so if its epilog runs or is awaited, if it had neither prolog nor start, or if its
        resources are free. An epilog that was open before a restart is run again.
        """
        run = self._runs.get(job.id)
        if job.id in self._awaited or (run is not None and run.what.description == EPILOG):
            return True
        if EPILOG in job.epilogs:
            return False
        was_there = job.event_posted(JobEvent.PROLOG_START) or job.start_requested
        return not was_there or job.event_posted(JobEvent.FREE)

    def _begin_epilog(self, job: jobtap.Job) -> None:
        self._awaited.discard(job.id)
        epilog = self._procedures.epilog
        if epilog is None:  # the configuration has changed since
            job.epilog_finish(EPILOG)
        else:
            self._begin(job, epilog)

    def _prolog_over(self, run: Run, note: str) -> None:
        run.is_over = True
        job = self.jobs.get(run.job.id)
        if job is not None and job.state is jobtap.State.CLEANUP:
            self._wind_up(job)
        elif run.worst.failed:
            run.job.raise_exception("prolog", 0, note)  # on_cleanup does the rest
        else:
            run.finish_posted = True
            run.job.prolog_finish(PROLOG, run.worst.status)

    def _epilog_over(self, run: Run, note: str) -> None:
        run.is_over = True
        worst = run.worst
        if worst.failed and (worst.killed or not worst.canceled):
            run.job.raise_exception("epilog", 2, note)
        run.job.epilog_finish(EPILOG, worst.status)

    # --- running

    def _begin(self, job: jobtap.Job, what: Procedure) -> None:
        targets = _ranks(job) if what.per_rank else ROOT
        run = self._runs[job.id] = Run(job, what, targets, job.id in self._taken_up)
        run.had_exception = job.exception is not None
        if what.description in job.prologs | job.epilogs:
            run.is_known.set()
        else:  # its start is logged when all plugins have answered: another one may take its time
            job.subscribe()
        self.start_soon(self._run, run)

    async def _run(self, run: Run) -> None:
        await run.is_known.wait()
        if self._runs.get(run.job.id) is not run:
            return  # the job is gone
        environment = os.environ | {
            OWNER: str(os.getpid()),
            JOB_ID: format_fluid(run.job.id, id_form()),
            "FLUX_JOB_RANKS": str(_ranks(run.job)),
            "FLUX_JOB_USERID": str(run.job.userid),
        }
        # a restarted job manager must know of this run: the kvs answers a lookup after earlier
        # commits
        await self.rpc(topics.KVS_LOOKUP, flux_kvs.look_up(Lookup(job_key(run.job.id, EVENTLOG))))
        if run.is_taken_up and not self._pretends:
            await trio.to_thread.run_sync(kill_leftovers, run.job.id)
        async with trio.open_nursery() as nursery:
            for rank in run.targets:
                nursery.start_soon(self._run_on, run, rank, environment)
        note = await self._report(run) if run.worst.failed else ""
        over = self._prolog_over if run.what.description == PROLOG else self._epilog_over
        over(run, note)

    async def _run_on(self, run: Run, rank: int, environment: dict[str, str]) -> None:
        what = run.what
        try:
            async with self.open_process(run, rank, environment) as process:
                run.endings[rank] = await run_to_end(
                    process, what.timeout, what.kill_timeout, run.canceled, self._durations()
                )
        except OSError as error:
            self.log(jobtap.Level.ERR, f"{_title(run, rank)}: {what.command[0]}: {error.strerror}")
            run.endings[rank] = Ending(CANNOT_START)

    def open_process(
        self, run: Run, rank: int, environment: dict[str, str]
    ) -> AbstractAsyncContextManager[Process]:
        """Start the command for one rank. Raises OSError on entering."""
        if self._pretends:
            return nullcontext(PretendedProcess())
        return open_process(run.what.command, environment, partial(self._write, run, rank))

    def _write(self, run: Run, rank: int, stream: str, line: str) -> None:
        if not self._procedures.ignores(line):
            level = jobtap.Level.ERR if stream == "stderr" else jobtap.Level.INFO
            self.log(level, f"{_title(run, rank)}: {stream}: {line}")

    async def _report(self, run: Run) -> str:
        """Drain the ranks that may be damaged; return the note of the exception."""
        to_drain = run.to_drain()
        hosts, exclude = await self._look_at_ranks(RESOURCE_TRIES if to_drain else 1)
        for why, ranks in to_drain.items():
            reason = f"{run.what.name} {why} for job {_name(run.job.id)}"
            await self._drain(ranks - exclude, reason)  # excluded ones are out of service, too
        failed = run.failed
        names = Hostlist.of(hosts[rank] for rank in failed if rank in hosts) if hosts else "unknown"
        return f"{run.what.name} {run.how} on {names} (rank {failed})"

    async def _drain(self, ranks: Idset, reason: str) -> None:
        """Drain `ranks`; a rank that is drained already keeps its reason."""
        if not ranks:
            return
        payload = {"targets": str(ranks), "reason": reason, "mode": "update"}
        try:
            await self._ask_resource(RESOURCE_TRIES, topics.RESOURCE_DRAIN, payload)
        except jobtap.FluxError as error:
            self.log(jobtap.Level.ERR, f"cannot drain {ranks} ({reason}): {error.text}")

    async def _ask_resource(
        self, tries: int, topic: str, payload: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Ask the resource service. Raises FluxError; ENOSYS if it is away at each of `tries`
        attempts.

        The job holds its nodes meanwhile, so no other job gets a node before it is drained.
        """
        for left in reversed(range(tries)):
            try:
                return await self.rpc(topic, payload)
            except jobtap.FluxError as error:
                if error.errnum != jobtap.Errno.ENOSYS or not left:
                    raise
            await self._durations().sleep(RESOURCE_RETRY_S)
        raise AssertionError("tries is at least 1")

    def _durations(self) -> Durations:
        return Durations(self.passed, self.clock_look_s())

    async def _look_at_ranks(self, tries: int) -> tuple[dict[int, str], Idset]:
        """Return the hosts by rank, and the excluded ranks; both are empty without an answer."""
        try:
            status = await self._ask_resource(tries, topics.RESOURCE_STATUS)
            return ResourceSet.parse(status["R"]).hosts, Idset.parse(status["exclude"])
        except (jobtap.FluxError, FormatError):
            return {}, Idset()


def _ranks(job: jobtap.Job) -> Idset:
    return ResourceSet.parse(job.R).ranks


def _name(jobid: int) -> str:
    return format_fluid(jobid, "f58")


def _title(run: Run, rank: int) -> str:
    return f"{_name(run.job.id)}: {run.what.name} (rank {rank})"
