"""The submission of a workload, and what becomes of its jobs. Sends and receives nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from flux_trio.messages import Calls, Flag, Request, Response, topics
from flux_trio.protocols import JobEvent
from flux_trio.sim.log_rows import WorkloadJob
from flux_trio.sim.metrics import JobFacts, Outcome
from flux_trio.sim.workload import to_jobspec

Progress = Callable[[int, int], None]
"""Takes the number of ended jobs and of all jobs; called often, must not block."""

SUBMITS_MAX: Final = 10_000  # requests without a response, far below the broker's limit
SETTLE_S: Final = 60.0  # silence for the longest job's time and this means a stall
_NAMED_MAX: Final = 5  # jobs named in an error message


class SimulationStalled(Exception):
    """Some jobs will never end, or a plugin does not; the text names them."""


class Replay:
    """Submits each job at its time, and follows all jobs to their end.

    `jobs` are in the order of submission. The requests of a job come with its user: None is the
    peer that follows the journal.
    """

    def __init__(self, jobs: Sequence[WorkloadJob], progress: Progress | None) -> None:
        self._jobs = jobs
        self._progress = progress
        self._calls: Calls[int] = Calls()  # matchtag → index of the job
        self._journal = self._calls.open(-1)  # the matchtag of the stream
        self._submitted = 0
        self._ids: dict[int, int] = {}  # index of a job → its id
        self._refused: dict[int, str] = {}  # index of a job → why ingest refused it
        self._followed: dict[int, FollowedJob] = {}  # by id
        self._ended = 0
        longest = max((job.elapsed_s for job in jobs), default=0.0)
        self.silence_s_max = longest + SETTLE_S

    @property
    def is_over(self) -> bool:
        """Whether all jobs have ended."""
        return self._ended >= len(self._jobs)

    def follow(self) -> Request:
        """Return the request for the journal."""
        wanted = {"allow": {name.value: 1 for name in EVENTS}}
        return Request(topics.JOB_JOURNAL, wanted, self._journal, int(Flag.STREAMING))

    def next_submit(self) -> float | None:
        """Return the time of the next submit; None if no job is left or too many wait."""
        if self._submitted == len(self._jobs) or len(self._calls) > SUBMITS_MAX:
            return None
        return self._jobs[self._submitted].submit_s

    def due(self, now: float) -> Iterator[tuple[str | None, Request]]:
        """Yield the submissions whose time has come, with the user of each."""
        while (at := self.next_submit()) is not None and at <= now:
            job = self._jobs[self._submitted]
            tag = self._calls.open(self._submitted)
            self._submitted += 1
            yield job.user, Request(topics.INGEST_SUBMIT, {"jobspec": to_jobspec(job)}, tag)

    def handle(self, responses: Iterable[Response]) -> None:
        """Take the responses, and report how many jobs have ended."""
        for response in responses:
            self._handle(response)
        if self._progress is not None:
            self._progress(self._ended, len(self._jobs))

    def facts(self) -> list[JobFacts]:
        """Return the facts of all jobs, in order of submission."""
        return [self._facts(place, job) for place, job in enumerate(self._jobs)]

    def first_left(self) -> int | None:
        """Return the id of the first job that has not ended; None if it has not got one."""
        return self._ids.get(self._left()[0])

    def stalled(self, log: Iterable[object], waits: str) -> SimulationStalled:
        """Return the error that names the jobs that have not ended, and the end of the log.

        `waits` says why the first of them waits; "" if nobody knows.
        """
        left = [self._jobs[place].name for place in self._left()]
        names = ", ".join(left[:_NAMED_MAX]) + ", ..." * (len(left) > _NAMED_MAX)
        why = f" Job {left[0]} waits: {waits}." if waits else ""
        last = "; ".join(str(entry) for entry in list(log)[-_NAMED_MAX:])
        return SimulationStalled(
            f"{len(left)} of {len(self._jobs)} jobs have not ended and nothing has happened for "
            f"{self.silence_s_max:g} s: {names}.{why} The log ends with: {last or 'nothing'}"
        )

    def _left(self) -> list[int]:
        """Return the indices of the jobs that have not ended."""
        over = {jobid for jobid, job in self._followed.items() if job.t_end is not None}
        return [
            place
            for place in range(len(self._jobs))
            if place not in self._refused and self._ids.get(place) not in over
        ]

    def _handle(self, response: Response) -> None:
        place = self._calls.match(response)
        payload = response.payload
        if response.matchtag == self._journal and isinstance(payload, dict):
            for jobid, _, event in payload["events"]:
                self._follow(jobid, event)
        elif place is not None and isinstance(payload, dict):
            self._ids[place] = payload["id"]
        elif place is not None:
            self._refused[place] = response.error_text
            self._ended += 1

    def _follow(self, jobid: int, event: dict[str, Any]) -> None:
        followed = self._followed.get(jobid)
        if followed is None:
            followed = self._followed[jobid] = FollowedJob()
        followed.apply(event)
        self._ended += event["name"] == JobEvent.CLEAN

    def _facts(self, place: int, job: WorkloadJob) -> JobFacts:
        ncores = job.nslots * job.cores_per_slot
        if place in self._refused:
            note = self._refused[place]
            at = job.submit_s
            denied = Outcome.DENIED
            return JobFacts(job.name, at, None, at, ncores, denied, note, job.user, job.bank)
        return self._followed[self._ids[place]].facts(job, ncores)


# --- one job, as the job manager's journal reports it


# The outcome of a job by the type of its fatal exception; any other type means FAILED.
_OUTCOMES: Final = {
    "timeout": Outcome.TIMEOUT,
    "cancel": Outcome.CANCELED,
    "alloc": Outcome.DENIED,  # RFC 27, Alloc Deny
}
_BANK_KEY: Final = "attributes.system.bank"

EVENTS: Final = (
    JobEvent.PRIORITY,
    JobEvent.START,
    JobEvent.FINISH,
    JobEvent.CLEAN,
    JobEvent.EXCEPTION,
    JobEvent.JOBSPEC_UPDATE,
)
"""The events that `FollowedJob.apply` accepts; only these are requested from the journal."""


class FollowedJob:
    """The state of one job, folded from its journal events."""

    __slots__ = ("_exception", "_status", "bank", "priorities", "t_end", "t_start")

    def __init__(self) -> None:
        self.t_start: float | None = None
        self.t_end: float | None = None
        self.bank: str | None = None  # the bank, if a plugin has set one
        self.priorities: list[tuple[float, int]] = []
        self._exception: dict[str, Any] | None = None  # the first fatal one
        self._status = 0

    def apply(self, event: dict[str, Any]) -> None:
        """Fold in one of EVENTS, in the form of RFC 21."""
        match event["name"]:
            case JobEvent.PRIORITY:
                self.priorities.append((event["timestamp"], event["context"]["priority"]))
            case JobEvent.START:
                self.t_start = event["timestamp"]
            case JobEvent.FINISH:
                self._status = event["context"]["status"]
            case JobEvent.CLEAN:
                self.t_end = event["timestamp"]
            case JobEvent.EXCEPTION if self._exception is None:
                self._exception = event["context"] if event["context"]["severity"] == 0 else None
            case JobEvent.JOBSPEC_UPDATE:
                self.bank = event["context"].get(_BANK_KEY, self.bank)

    def facts(self, job: WorkloadJob, ncores: int) -> JobFacts:
        assert self.t_end is not None
        return JobFacts(
            job.name,
            job.submit_s,
            self.t_start,
            self.t_end,
            ncores,
            self._outcome(),
            self._exception.get("note", "") if self._exception else "",
            job.user,
            self.bank or job.bank,
            tuple(self.priorities),
        )

    def _outcome(self) -> Outcome:
        if self._exception is not None:
            return _OUTCOMES.get(self._exception["type"], Outcome.FAILED)
        return Outcome.FAILED if self._status else Outcome.COMPLETED
