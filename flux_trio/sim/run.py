"""A simulated run: a workload on a machine of any size, in seconds instead of months.

A whole instance runs in virtual time from one seed, with its store in memory and jobs that pretend
to run. One peer submits each job at its time and follows the job manager's journal until all have
ended. What a job does when it runs is in its jobspec: it ends after its elapsed time, or at its
limit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from flux_trio.broker import Handle
from flux_trio.config import Config, ExecConfig, SchedConfig
from flux_trio.formats import ResourceSet
from flux_trio.instance import MODULES, Instance, Surroundings, open_instance
from flux_trio.jobtap import Plugin
from flux_trio.messages import Calls, Flag, Request, Response, topics
from flux_trio.protocols import JobEvent
from flux_trio.sim.metrics import JobFacts, Metrics, Outcome, measure
from flux_trio.sim.workload import WorkloadJob, to_jobspec
from flux_trio.sim.world import run_world
from flux_trio.trace import Sink

PolicyName = Literal["fifo", "easy", "conservative"]
Progress = Callable[[int, int], None]
"""Told how many jobs have ended, and of how many; called often, must not block."""

USERID: Final = 1000  # whoever runs the simulation: traces are the same on every machine
SUBMITS_MAX: Final = 10_000  # unanswered at a time, far below what the broker refuses
SETTLE_S: Final = 60.0  # beyond the longest job, after which silence means that nothing goes on
_NAMED_MAX: Final = 5  # of the jobs in an error message

# Nobody asks job-list here, and it would cost a tenth of the time.
_MODULES: Final = tuple(name for name in MODULES if name != "job-list")

# What became of a job whose fatal exception has this type; others failed.
_OUTCOMES: Final = {
    "timeout": Outcome.TIMEOUT,
    "cancel": Outcome.CANCELED,
    "alloc": Outcome.DENIED,  # RFC 27, Alloc Deny
}


class SimulationStalled(Exception):
    """Jobs are left that nothing will ever happen to."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What came of a workload."""

    jobs: list[JobFacts]
    """In the order they were submitted."""
    metrics: Metrics


def make_machine(nnodes: int, cores_per_node: int, gpus_per_node: int = 0) -> ResourceSet:
    """A machine of equal nodes, node0 and up."""
    cores, gpus = (1 << cores_per_node) - 1, (1 << gpus_per_node) - 1
    return ResourceSet.build(((rank, cores, gpus) for rank in range(nnodes)), "node{}".format)


def simulate(
    jobs: Iterable[WorkloadJob],
    machine: ResourceSet,
    policy: PolicyName = "fifo",
    seed: int = 0,
    *,
    progress: Progress | None = None,
    plugins: Iterable[Plugin] = (),
    sinks: Iterable[Sink] = (),
) -> SimulationResult:
    """Run `jobs` on `machine` until all have ended; from one seed, always in the same way.

    A job that the machine is too small for is denied by the scheduler, one that is no valid job
    by ingest: both are in the result. `sinks` get every record of the trace. Raises
    SimulationStalled when jobs are left that will never end, and what `open_instance` raises.
    """
    ordered = sorted(jobs, key=lambda job: job.submit_s)
    config = Config(sched=SchedConfig(policy=policy), exec=ExecConfig(simulate=True))
    given = Surroundings(
        inventory=machine,
        userid=USERID,
        epoch=ordered[0].submit_s if ordered else 0.0,
        plugins=plugins,
        sinks=sinks,
        modules=_MODULES,
    )
    facts = run_world(functools.partial(_replay, ordered, config, given, progress), seed)
    return SimulationResult(facts, measure(facts, machine.ncores))


async def _replay(
    jobs: list[WorkloadJob], config: Config, given: Surroundings, progress: Progress | None
) -> list[JobFacts]:
    async with open_instance(config, given) as instance, instance.connect("workload") as handle:
        replay = _Replay(handle, jobs, progress)
        stalled = await replay.run(instance)
    if stalled is not None:  # raised out here: inside, the instance's nursery would wrap it
        raise stalled
    return replay.facts()


class _Followed:
    """What the journal has told of a job."""

    __slots__ = ("exception", "status", "t_end", "t_start")

    def __init__(self) -> None:
        self.t_start: float | None = None
        self.t_end: float | None = None
        self.exception: dict[str, Any] | None = None  # the first fatal one
        self.status = 0

    def take(self, event: dict[str, Any]) -> None:
        """One event of its eventlog (RFC 21)."""
        name = event["name"]
        if name == JobEvent.START:
            self.t_start = event["timestamp"]
        elif name == JobEvent.FINISH:
            self.status = event["context"]["status"]
        elif name == JobEvent.CLEAN:
            self.t_end = event["timestamp"]
        elif name == JobEvent.EXCEPTION and self.exception is None:
            self.exception = event["context"] if event["context"]["severity"] == 0 else None

    def outcome(self) -> Outcome:
        """How it ended."""
        if self.exception is not None:
            return _OUTCOMES.get(self.exception["type"], Outcome.FAILED)
        return Outcome.FAILED if self.status else Outcome.COMPLETED


class _Replay:
    """Submits each job at its time; follows all of them to their end."""

    def __init__(
        self, handle: Handle, jobs: Sequence[WorkloadJob], progress: Progress | None
    ) -> None:
        self._handle = handle
        self._jobs = jobs  # in order of submission
        self._progress = progress
        self._calls: Calls[int] = Calls()  # the place of the job submitted
        self._journal = self._calls.open(-1)  # the matchtag of the stream
        self._submitted = 0
        self._ids: dict[int, int] = {}  # place of a job → its id
        self._refused: dict[int, str] = {}  # place of a job → why ingest refused it
        self._followed: dict[int, _Followed] = {}  # by id
        self._ended = 0
        longest = max((job.elapsed_s for job in jobs), default=0.0)
        self._silence_s_max = longest + SETTLE_S

    async def run(self, instance: Instance) -> SimulationStalled | None:
        """Until all jobs have ended, or nothing happens any more."""
        self._handle.send(Request(topics.JOB_JOURNAL, {}, self._journal, int(Flag.STREAMING)))
        while self._ended < len(self._jobs):
            self._submit_due()
            at = self._next_submit()
            silent_at = self._handle.now() + self._silence_s_max
            messages = await self._handle.receive_until(silent_at if at is None else at)
            if not messages and at is None:
                return self._stalled(instance)
            for message in messages:
                self._take(message)
            if self._progress is not None:
                self._progress(self._ended, len(self._jobs))
        return None

    def facts(self) -> list[JobFacts]:
        """Of all jobs, in order of submission."""
        return [self._facts(place, job) for place, job in enumerate(self._jobs)]

    def _next_submit(self) -> float | None:
        """When to submit again; None when that is not a matter of time."""
        if self._submitted == len(self._jobs) or len(self._calls) > SUBMITS_MAX:
            return None
        return self._jobs[self._submitted].submit_s

    def _submit_due(self) -> None:
        now = self._handle.now()
        while (at := self._next_submit()) is not None and at <= now:
            payload = {"jobspec": to_jobspec(self._jobs[self._submitted])}
            tag = self._calls.open(self._submitted)
            self._handle.send(Request(topics.INGEST_SUBMIT, payload, tag))
            self._submitted += 1

    def _take(self, response: Response) -> None:
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
            followed = self._followed[jobid] = _Followed()
        followed.take(event)
        self._ended += event["name"] == JobEvent.CLEAN

    def _facts(self, place: int, job: WorkloadJob) -> JobFacts:
        ncores = job.nslots * job.cores_per_slot
        if place in self._refused:
            note = self._refused[place]
            at = job.submit_s
            return JobFacts(job.name, at, None, at, ncores, Outcome.DENIED, note)
        followed = self._followed[self._ids[place]]
        assert followed.t_end is not None
        note = followed.exception.get("note", "") if followed.exception else ""
        return JobFacts(
            job.name,
            job.submit_s,
            followed.t_start,
            followed.t_end,
            ncores,
            followed.outcome(),
            note,
        )

    def _stalled(self, instance: Instance) -> SimulationStalled:
        over = {jobid for jobid, job in self._followed.items() if job.t_end is not None}
        left = [
            job.name
            for place, job in enumerate(self._jobs)
            if place not in self._refused and self._ids.get(place) not in over
        ]
        names = ", ".join(left[:_NAMED_MAX]) + ", ..." * (len(left) > _NAMED_MAX)
        log = "; ".join(str(entry) for entry in list(instance.log)[-_NAMED_MAX:])
        return SimulationStalled(
            f"{len(left)} of {len(self._jobs)} jobs have not ended and nothing has happened for "
            f"{self._silence_s_max:g} s: {names}. The log ends with: {log or 'nothing'}"
        )
