"""A simulated run: a workload on a machine of any size, in seconds instead of months.

A whole instance runs in virtual time from one seed, with its store in memory and simulated job
execution. One peer submits each job at its time, and follows the job manager's journal until all
jobs have ended. The jobspec says when a job ends: after its elapsed time, or at its limit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import trio

from flux_trio.broker import Handle
from flux_trio.config import Config, ExecConfig, UserLimitsConfig
from flux_trio.formats import ResourceSet
from flux_trio.instance import MODULES, Instance, Surroundings, open_instance
from flux_trio.jobtap import Plugin, PluginLoop, failures_told
from flux_trio.messages import Calls, Flag, FluxError, Request, Response, topics
from flux_trio.protocols import JobEvent
from flux_trio.sim.followed import EVENTS, FollowedJob
from flux_trio.sim.metrics import JobFacts, Metrics, Outcome, measure
from flux_trio.sim.users import UserBook, userids_of
from flux_trio.sim.workload import WorkloadJob, to_jobspec
from flux_trio.sim.world import run_world
from flux_trio.trace import Sink

PolicyName = Literal["fifo", "easy", "conservative"]
Progress = Callable[[int, int], None]
"""Takes the number of ended jobs and of all jobs; called often, must not block."""

USERID: Final = 1000  # a fixed owner: traces are the same on every machine
SUBMITS_MAX: Final = 10_000  # requests without a response, far below the broker's limit
SETTLE_S: Final = 60.0  # silence for the longest job's time and this means a stall
_NAMED_MAX: Final = 5  # jobs named in an error message

# job-list is not used here, and would take a tenth of the time.
_MODULES: Final = tuple(name for name in MODULES if name != "job-list")


class SimulationStalled(Exception):
    """Some jobs will never end, or a plugin does not; the text names them."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The jobs and figures of a simulated workload."""

    jobs: list[JobFacts]
    """In the order they were submitted."""
    metrics: Metrics
    shares: dict[str, float]
    """Each user's share by a plugin's policy, in any unit; {} if no plugin has shares."""


def make_machine(nnodes: int, cores_per_node: int, gpus_per_node: int = 0) -> ResourceSet:
    """Return a machine of equal nodes: node0, node1 and so on."""
    cores, gpus = (1 << cores_per_node) - 1, (1 << gpus_per_node) - 1
    return ResourceSet.build(((rank, cores, gpus) for rank in range(nnodes)), "node{}".format)


def simulate(
    jobs: Iterable[WorkloadJob],
    machine: ResourceSet,
    policy: PolicyName = "fifo",
    seed: int = 0,
    *,
    config: Config | None = None,
    progress: Progress | None = None,
    plugins: Iterable[Plugin] = (),
    sinks: Iterable[Sink] = (),
) -> SimulationResult:
    """Run `jobs` on `machine` until all have ended; the same seed gives the same run.

    The scheduler denies a job that is too large for the machine, and ingest refuses an invalid job;
    both are in the result. `config` has queues, limits and plugins. A job with a user is submitted
    by that user. `sinks` get every record of the trace. Raises SimulationStalled if some jobs will
    never end, and the errors of `open_instance`.
    """
    ordered = sorted(jobs, key=lambda job: job.submit_s)
    userids = userids_of(ordered)
    sched = msgspec.structs.replace((config or Config()).sched, policy=policy)
    simulated = ExecConfig(simulate=True)
    no_limits = UserLimitsConfig(
        jobs=0, jobspec_bytes=0
    )  # the jobs of a log passed the limits of their own site
    job_manager = msgspec.structs.replace((config or Config()).job_manager, user_limits=no_limits)
    config = msgspec.structs.replace(
        config or Config(), sched=sched, exec=simulated, job_manager=job_manager
    )
    given = Surroundings(
        inventory=machine,
        userid=USERID,
        epoch=ordered[0].submit_s if ordered else 0.0,
        plugins=plugins,
        sinks=sinks,
        modules=_MODULES,
        users=UserBook(userids),
    )
    main = functools.partial(_replay, ordered, config, given, userids, progress)
    facts, shares = run_world(main, seed, given.epoch)
    return SimulationResult(facts, measure(facts, machine.ncores), shares)


async def _replay(
    jobs: list[WorkloadJob],
    config: Config,
    given: Surroundings,
    userids: dict[str, int],
    progress: Progress | None,
) -> tuple[list[JobFacts], dict[str, float]]:
    ending = trio.CancelScope()
    loops: list[BaseException] = []

    def failed(error: BaseException) -> None:
        """End the run if a plugin was interrupted: how far it came depends on the real time."""
        if isinstance(error, PluginLoop):
            loops.append(error)
            ending.cancel()

    token = failures_told.set((*failures_told.get(), failed))
    stalled, shares = None, {}
    try:
        async with open_instance(config, given) as instance, instance.connect("workload") as handle:
            with ending:
                async with _submitters(instance, handle, userids) as submitters:
                    replay = _Replay(handle, jobs, submitters, progress)
                    stalled = await replay.run(instance)
                async with instance.connect("shares") as asking:
                    shares = await _shares(asking, userids)
    finally:
        failures_told.reset(token)
    if loops:
        raise SimulationStalled("\n".join(loops[0].__notes__))
    if stalled is not None:  # raised here: inside, the instance's nursery would wrap it
        raise stalled
    return replay.facts(), shares


@asynccontextmanager
async def _submitters(
    instance: Instance, inbox: Handle, userids: dict[str, int]
) -> AsyncIterator[dict[str | None, Handle]]:
    """Yield a peer for each user (None: `inbox`); `inbox` receives all their responses."""
    async with AsyncExitStack() as peers, trio.open_nursery() as nursery:
        handles: dict[str | None, Handle] = {None: inbox}
        for user, userid in userids.items():
            handles[user] = await peers.enter_async_context(instance.connect(user, userid=userid))
            nursery.start_soon(_pass_on, handles[user], inbox)
        yield handles
        nursery.cancel_scope.cancel()


async def _pass_on(handle: Handle, inbox: Handle) -> None:
    while True:
        for message in await handle.receive():
            inbox.post(message)


async def _shares(handle: Handle, userids: dict[str, int]) -> dict[str, float]:
    """Return the `shares` of the first plugin whose query has them, by user name."""
    listed = await handle.call(topics.JOB_JOBTAP_LIST, {})
    for name in listed["plugins"]:
        try:
            queried = await handle.call(topics.JOB_JOBTAP_QUERY, {"name": name})
        except FluxError:
            continue  # its query fails
        shares = queried.get("shares")
        if isinstance(shares, dict):
            return {user: _share(shares.get(str(userid))) for user, userid in userids.items()}
    return {}


def _share(value: object) -> float:
    """Return a user's share; 0.0 if a plugin's value is not a finite number from 0."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value < math.inf else 0.0


class _Replay:
    """Submits each job at its time, and follows all jobs to their end."""

    def __init__(
        self,
        handle: Handle,
        jobs: Sequence[WorkloadJob],
        submitters: Mapping[str | None, Handle],
        progress: Progress | None,
    ) -> None:
        self._handle = handle
        self._submitters = submitters
        self._jobs = jobs  # in order of submission
        self._progress = progress
        self._calls: Calls[int] = Calls()  # matchtag → index of the job
        self._journal = self._calls.open(-1)  # the matchtag of the stream
        self._submitted = 0
        self._ids: dict[int, int] = {}  # index of a job → its id
        self._refused: dict[int, str] = {}  # index of a job → why ingest refused it
        self._followed: dict[int, FollowedJob] = {}  # by id
        self._ended = 0
        longest = max((job.elapsed_s for job in jobs), default=0.0)
        self._silence_s_max = longest + SETTLE_S

    async def run(self, instance: Instance) -> SimulationStalled | None:
        """Run until all jobs have ended (returns None), or until nothing happens any more."""
        wanted = {"allow": {name.value: 1 for name in EVENTS}}
        self._handle.send(Request(topics.JOB_JOURNAL, wanted, self._journal, int(Flag.STREAMING)))
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
        """Return the facts of all jobs, in order of submission."""
        return [self._facts(place, job) for place, job in enumerate(self._jobs)]

    def _next_submit(self) -> float | None:
        """Return the time of the next submit; None if no job is left or too many wait."""
        if self._submitted == len(self._jobs) or len(self._calls) > SUBMITS_MAX:
            return None
        return self._jobs[self._submitted].submit_s

    def _submit_due(self) -> None:
        now = self._handle.now()
        while (at := self._next_submit()) is not None and at <= now:
            job = self._jobs[self._submitted]
            payload = {"jobspec": to_jobspec(job)}
            tag = self._calls.open(self._submitted)
            self._submitters[job.user].send(Request(topics.INGEST_SUBMIT, payload, tag))
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
            followed = self._followed[jobid] = FollowedJob()
        followed.take(event)
        self._ended += event["name"] == JobEvent.CLEAN

    def _facts(self, place: int, job: WorkloadJob) -> JobFacts:
        ncores = job.nslots * job.cores_per_slot
        if place in self._refused:
            note = self._refused[place]
            at = job.submit_s
            denied = Outcome.DENIED
            return JobFacts(job.name, at, None, at, ncores, denied, note, job.user, job.bank)
        return self._followed[self._ids[place]].facts(job, ncores)

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
