"""`<userid>-shell-<job id>.proctable`: which processes the tasks of a job are, for debuggers.

`flux job hostpids` and the tools that start by MPIR (the interface of parallel debuggers) ask the
shell of a job. The shell host knows; tasks that have ended are left out.
"""

from __future__ import annotations

from flux_trio.cores.exec.calls import ExecOutbox
from flux_trio.cores.exec.job import Job, Jobs, Phase
from flux_trio.cores.exec.real import RealJobs
from flux_trio.cores.exec.vocabulary import ToShell
from flux_trio.cores.state import Part
from flux_trio.editions import exec_requests
from flux_trio.formats import format_fluid
from flux_trio.formats.meanings import JobId
from flux_trio.messages import Errno, FluxError, Request, respond, respond_error
from flux_trio.shell.protocol import Identify, Processes


class ProcessTables(Part):
    """The requests that wait for the shell host, by job."""

    _waiting: dict[JobId, list[Request]]

    def __init__(self, outbox: ExecOutbox, jobs: Jobs, real: RealJobs) -> None:
        self._outbox = outbox
        self._jobs = jobs
        self._real = real
        self._waiting = {}

    def ask(self, request: Request, jobid: JobId) -> None:
        """Ask the shell host. Raises FluxError."""
        job = self._jobs.asked_about(request, jobid)
        if job.phase is not Phase.RUNNING or job.start is None:
            raise FluxError(Errno.ENOSYS, f"job {format_fluid(jobid, 'f58')} has no processes")
        self._real.check_connected(job)
        self._waiting.setdefault(jobid, []).append(request)
        self._outbox.send(ToShell(Identify(jobid)))

    def told(self, notice: Processes) -> None:
        """Answer those who wait for the processes of a job."""
        job = self._jobs.running(notice.id)
        for request in self._waiting.pop(notice.id, ()):
            if job is None or not notice.pids:
                text = f"job {format_fluid(notice.id, 'f58')} has no processes"
                self._outbox.send(respond_error(request, Errno.ENOSYS, text))
            else:
                table = exec_requests.PROCESS_TABLE.write(_table(job, notice))
                self._outbox.send(respond(request, table))

    def leave(self, sender: str) -> None:
        """Forget the requests of a peer that is gone."""
        for jobid, waiting in self._waiting.items():
            self._waiting[jobid] = [each for each in waiting if each.sender != sender]

    def disconnected(self, reason: str) -> None:
        """Refuse what waits: the shell host cannot answer any more."""
        waiting, self._waiting = self._waiting, {}
        for request in (each for of_job in waiting.values() for each in of_job):
            text = f"lost the shell host: {reason}"
            self._outbox.send(respond_error(request, Errno.EIO, text))


def _table(job: Job, notice: Processes) -> exec_requests.ProcessTable:
    assert job.start is not None
    tasks, argv = job.start.tasks, job.start.argv
    return exec_requests.ProcessTable(
        hosts=[notice.host] * len(notice.pids),
        executables=[(tasks[taskid].argv or argv)[0] for taskid in notice.pids],
        ids=_differences(list(notice.pids)),
        pids=_differences(list(notice.pids.values())),
        ranks=_differences([int(tasks[taskid].env["FLUX_TRIO_RANK"]) for taskid in notice.pids]),
    )


def _differences(numbers: list[int]) -> list[int]:
    """Return numbers as flux-core's programs read them here: each less the one before."""
    return [each - before for before, each in zip([0, *numbers], numbers, strict=False)]
