"""job-manager.wait: the result of a job that was submitted as waitable, sent once.

It works like wait(2) for children: a result is kept until a request asks for it, by the job's id or
for any job. ECHILD says that there is no job to wait for. Only the owner may submit such jobs and
wait for them, since a result stays until a request asks for it. Left out: results across a restart;
a job that is active then can be waited for again.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.jobs.ledger import Ledger
from flux_trio.cores.state import Part
from flux_trio.editions import job_requests, rfc21
from flux_trio.formats import Event
from flux_trio.formats.meanings import JobId
from flux_trio.messages import Errno, FluxError, Request, respond, respond_error
from flux_trio.protocols import JobEvent, JobFlag

NO_MORE: Final = "there are no more waitable jobs"

_WAITABLE = JobFlag.WAITABLE.value  # as a number: it is compared for each event


class Waitable(Part):
    """Waitable jobs, their results, and the requests that wait."""

    results: dict[JobId, int | str]  # oldest first: see `_result_of`
    waiting: dict[JobId, Request]  # by active job
    for_any: deque[Request]  # for the next job that ends
    active: set[JobId] | None  # waitable jobs; None until the first use

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.results = {}
        self.waiting = {}
        self.for_any = deque()
        self.active = None
        ledger.listen(JobEvent.SUBMIT, self._came)
        ledger.listen(JobEvent.INVALIDATE, self._refused)
        ledger.listen(JobEvent.CLEAN, self._over)

    def wait(self, request: Request) -> None:
        """job-manager.wait: answered when the job has ended; the id may stand for any job."""
        wanted = job_requests.WAIT.read(request)
        jobid = wanted.id
        if wanted.is_for_any:
            self._wait_for_any(request)
        elif jobid in self.results:
            self._answer(request, jobid, self.results.pop(jobid))
        else:
            self._wait_for(request, jobid)
        if self.for_any and len(self.for_any) + len(self.waiting) > len(self._jobs()):
            self._ledger.send(respond_error(self.for_any.pop(), Errno.ECHILD, NO_MORE))

    def forget(self, sender: str) -> None:
        """Drop the requests of a peer that is gone."""
        self.for_any = deque(each for each in self.for_any if each.sender != sender)
        self.waiting = {
            jobid: each for jobid, each in self.waiting.items() if each.sender != sender
        }

    def _wait_for_any(self, request: Request) -> None:
        if self.results:
            jobid = next(iter(self.results))
            self._answer(request, jobid, self.results.pop(jobid))
        else:
            self.for_any.append(request)

    def _wait_for(self, request: Request, jobid: int) -> None:
        job = self._ledger.jobs.get(jobid)
        if job is None:
            text = "invalid job id, or job may be inactive and not waitable"
            raise FluxError(Errno.ECHILD, text)
        if not job.flags & _WAITABLE:
            raise FluxError(Errno.ECHILD, "job was not submitted with FLUX_JOB_WAITABLE")
        if jobid in self.waiting:
            raise FluxError(Errno.ECHILD, "job id already has a waiter")
        self.waiting[jobid] = request

    def _jobs(self) -> set[int]:
        """Return the active waitable jobs; the set is kept up to date from the first call on."""
        if self.active is None:
            jobs = self._ledger.jobs.values()
            self.active = {job.id for job in jobs if job.flags & _WAITABLE}
        return self.active

    def _came(self, job: ActiveJob, _event: Event) -> None:
        if job.flags & _WAITABLE:
            self._jobs().add(job.id)

    def _refused(self, job: ActiveJob, _event: Event) -> None:
        if job.flags & _WAITABLE:
            self._jobs().discard(job.id)

    def _over(self, job: ActiveJob, _event: Event) -> None:
        if job.flags & _WAITABLE:
            self._jobs().discard(job.id)
            self._ended(job.id, _result_of(job))

    def _ended(self, jobid: int, result: int | str) -> None:
        request = self.waiting.pop(jobid, None)
        if request is None and self.for_any:
            request = self.for_any.popleft()
        if request is None:
            self.results[jobid] = result
        else:
            self._answer(request, jobid, result)

    def _answer(self, request: Request, jobid: int, result: int | str) -> None:
        self._ledger.send(respond(request, job_requests.WAITED.write(_waited(jobid, result))))


def _result_of(job: ActiveJob) -> int | str:
    """Return the wait status of the tasks, or the text of the exception that ended the job."""
    if job.exception is None:
        return job.status or 0
    raised = rfc21.read_exception(job.exception)
    return f"Fatal exception type={raised.type} {raised.note}"


def _waited(jobid: int, result: int | str) -> job_requests.Waited:
    if isinstance(result, str):
        return job_requests.Waited(jobid, success=False, errstr=result)
    text = ""
    if signum := result & 0x7F:
        text = f"task(s) ended by signal {signum}"
    elif code := result >> 8:
        text = f"task(s) exited with exit code {code}"
    return job_requests.Waited(jobid, result == 0, text, result)
