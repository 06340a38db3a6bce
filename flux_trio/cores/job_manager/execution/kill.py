"""job-manager.kill and killall: signals for the processes of jobs, sent by the exec service.

The job manager checks whose job it is and whether the job runs. The request `<service>.kill`, an
extension of RFC 32, sends the signal.
"""

from __future__ import annotations

from typing import Final

from flux_trio.cores.job_manager.calls import Absent, KillSent
from flux_trio.cores.job_manager.execution.side import ExecSide
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.state import Part
from flux_trio.editions import job_requests
from flux_trio.messages import (
    USERID_UNKNOWN,
    Errno,
    FluxError,
    Request,
    Response,
    check_user,
    respond,
    respond_error,
)
from flux_trio.messages.types import NORESPONSE
from flux_trio.protocols import RUNNING

METHOD: Final = "kill"


class Kills(Part):
    """Answers job-manager.kill and job-manager.killall."""

    def __init__(self, ledger: Ledger, execution: ExecSide) -> None:
        self._ledger = ledger
        self._exec = execution

    def kill(self, request: Request) -> None:
        """job-manager.kill: send a signal to one job, for its user or the owner."""
        payload = job_requests.KILL.read(request)
        _check_signal(payload.signum)
        denied = "guests may only send signals to their own jobs"
        absent = Absent(payload.id, Errno.EINVAL, inactive_errnum=Errno.EINVAL)
        job = self._ledger.asked_about(request, payload.id, denied, absent)
        if job is None:
            return
        if not job.state & RUNNING or not self._exec.service:
            raise FluxError(Errno.EINVAL, "job is not running")
        signal = job_requests.KILL.write(job_requests.Kill(job.id, payload.signum))
        topic = f"{self._exec.service}.{METHOD}"
        self._ledger.ask_when_durable(topic, signal, KillSent(request))

    def kill_all(self, request: Request) -> None:
        """job-manager.killall: send a signal to all jobs of a user."""
        payload = job_requests.KILL_ALL.read(request)
        _check_signal(payload.signum)
        check_user(request, payload.userid, "guests can only kill their own jobs")
        chosen = [
            job
            for job in self._ledger.running.values()
            if payload.userid in (USERID_UNKNOWN, job.userid)
        ]
        if not payload.dry_run and self._exec.service:
            topic = f"{self._exec.service}.{METHOD}"
            for job in chosen:
                signal = job_requests.KILL.write(job_requests.Kill(job.id, payload.signum))
                self._ledger.send(Request(topic, signal, flags=NORESPONSE))
        counted = job_requests.Counted(len(chosen), 0)
        self._ledger.send(respond(request, job_requests.COUNTED.write(counted)))

    def answered(self, request: Request, response: Response) -> None:
        """Pass on the execution service's answer."""
        if response.errnum:
            answer = respond_error(request, response.errnum, response.error_text)
        else:
            answer = respond(request)
        self._ledger.send(answer)


def _check_signal(signum: int) -> None:
    if not 1 <= signum <= job_requests.SIGNUM_MAX:
        raise FluxError(Errno.EINVAL, "Invalid signal number")
