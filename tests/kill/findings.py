"""What must be true of a state directory after lives that ended with SIGKILL.

Nothing acknowledged is missing, no purge is half done, no task was started twice, no id was given
twice, no resource was lost or given to two jobs at once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import trio

from flux_trio.client import Client
from flux_trio.editions import Edition
from flux_trio.formats import (
    Event,
    Jobspec,
    ResourceSet,
    format_fluid,
    job_directory_of,
    parse_eventlog,
    parse_fluid,
)
from flux_trio.messages import FluxError, topics
from flux_trio.protocols import ACTIVE, JobState, replay
from tests.kill.lives import CORES, RUNS_FILE, Lives, Memory, connected

REST_S_MAX = 300.0  # only what hangs takes so long: a few hundred jobs at most are left to run
LOST = "its shell host was killed"  # the end of a note


@dataclass(frozen=True)
class Kept:
    """One job as the instance has it at last."""

    id: int
    events: list[Event]
    resources: ResourceSet | None
    output: str

    def named(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]


async def find(lives: Lives) -> list[str]:
    """What is wrong, in words; the instance of `lives` runs."""
    async with connected(lives.directory) as client:
        with trio.fail_after(REST_S_MAX):
            jobs = {jobid: await _read(client, jobid) for jobid in await _at_rest(client)}
            whole = await _run_on_everything(client)
            stored = await _stored(client, lives.edition)
    runs = Counter((lives.directory / RUNS_FILE).read_text().splitlines())
    return [
        *missing(lives.memory, jobs),
        *half_purged(lives.memory, jobs, stored),
        *reused(lives.memory),
        *run_twice(runs),
        *ended_badly(lives.memory, jobs),
        *without_a_sign(lives.memory, jobs, runs),
        *overlapping(list(jobs.values())),
        *([] if whole.ncores == CORES else [f"of {CORES} cores {whole.ncores} are left"]),
    ]


def missing(memory: Memory, jobs: dict[int, Kept]) -> list[str]:
    """Acknowledged jobs that are not known, and cancels that are not in the eventlog."""
    there = jobs.keys() | memory.asked_to_purge
    lost = [jobid for jobid in memory.submitted if jobid not in there]
    forgotten = [
        jobid
        for jobid in memory.canceled
        if jobid in jobs and not any(_is_cancel(each) for each in jobs[jobid].named("exception"))
    ]
    return [f"job {_f58(jobid)} was acknowledged and is not known" for jobid in lost] + [
        f"job {_f58(jobid)} was canceled, and its eventlog does not say so" for jobid in forgotten
    ]


def half_purged(memory: Memory, jobs: dict[int, Kept], stored: set[int]) -> list[str]:
    """Jobs that are still there after their purge was acknowledged, or of which a part is."""
    there = [jobid for jobid in memory.purged if jobid in jobs]
    parts = [jobid for jobid in memory.asked_to_purge if jobid in stored and jobid not in jobs]
    return [f"job {_f58(jobid)} was purged and is there" for jobid in there] + [
        f"job {_f58(jobid)} is not known, and something of it is stored" for jobid in parts
    ]


def reused(memory: Memory) -> list[str]:
    """Ids that were told twice."""
    return [
        f"id {_f58(jobid)} was given to {count} jobs"
        for jobid, count in Counter(memory.submitted).items()
        if count > 1
    ]


def run_twice(runs: Counter[str]) -> list[str]:
    """Tasks that were started more than once, by their own account."""
    return [f"task {line!r} was started {count} times" for line, count in runs.items() if count > 1]


def ended_badly(memory: Memory, jobs: dict[int, Kept]) -> list[str]:
    """Jobs that are not over, or that nobody canceled and that did not run to a good end, once."""
    found = []
    for job in jobs.values():
        if replay(job.id, job.events).state != JobState.INACTIVE:
            found.append(f"job {_f58(job.id)} is not over: {_names(job)}")
        elif job.id in memory.asked_to_cancel or was_lost(memory, job):
            continue
        elif [event.context for event in job.named("finish")] != [{"status": 0}]:
            found.append(f"job {_f58(job.id)} did not end well: {_names(job)}")
        elif len(job.named("start")) != 1 or job.named("exception"):
            found.append(f"job {_f58(job.id)} did not run once: {_names(job)}")
    return found


def was_lost(memory: Memory, job: Kept) -> bool:
    """Whether the end of the job was lost with a shell host that was killed, and it says so."""
    notes = [str((event.context or {}).get("note", "")) for event in job.named("exception")]
    return memory.hosts_killed > 0 and any(LOST in note for note in notes)


def without_a_sign(memory: Memory, jobs: dict[int, Kept], runs: Counter[str]) -> list[str]:
    """Jobs that nobody canceled, and that left no line in the file or no output."""
    ran = {parse_fluid(line.split()[0]) for line in runs}
    return [
        f"job {_f58(job.id)} ended and left no sign of itself"
        for job in jobs.values()
        if job.id not in memory.asked_to_cancel
        and not was_lost(memory, job)
        and (job.id not in ran or _f58(job.id) not in job.output)
    ]


def overlapping(jobs: list[Kept]) -> list[str]:
    """Pairs of jobs that held the same core at the same time, alloc to free."""
    held: dict[tuple[int, int], list[tuple[float, float, int]]] = {}
    for job in jobs:
        if job.resources is None or not job.named("alloc"):
            continue
        start, end = job.named("alloc")[0].timestamp, job.named("free")[0].timestamp
        for rank in job.resources.ranks:
            for core in job.resources.cores(rank):
                held.setdefault((rank, core), []).append((start, end, job.id))
    return [
        f"rank {rank} core {core} was held by {_f58(first[2])} and {_f58(second[2])} at once"
        for (rank, core), spans in held.items()
        for first, second in pairwise(sorted(spans))
        if second[0] < first[1]
    ]


async def _at_rest(client: Client) -> list[int]:
    """The ids of all jobs, once all are inactive."""
    while True:
        states = int(ACTIVE | JobState.INACTIVE)
        listed = await client.call(topics.LIST_LIST, {"max_entries": 0, "states": states})
        if all(job["state"] == JobState.INACTIVE for job in listed["jobs"]):
            return [job["id"] for job in listed["jobs"]]
        await trio.sleep(0.02)


async def _read(client: Client, jobid: int) -> Kept:
    events = parse_eventlog(await _lookup(client, jobid, "eventlog"))
    r = await _lookup(client, jobid, "R")
    resources = ResourceSet.parse(r.encode()) if r else None
    return Kept(jobid, events, resources, await _lookup(client, jobid, "guest.output"))


async def _lookup(client: Client, jobid: int, key: str) -> str:
    try:
        found: dict[str, Any] = await client.call(topics.INFO_LOOKUP, {"id": jobid, "keys": [key]})
    except FluxError:
        return ""
    return str(found[key])


async def _stored(client: Client, edition: Edition) -> set[int]:
    """The ids of the jobs of which anything is stored."""
    keys: list[str] = (await client.call(edition.kvs.own.dir, {"prefix": "job"}))["keys"]
    return {parse_fluid(each) for each in map(job_directory_of, keys) if each is not None}


async def _run_on_everything(client: Client) -> ResourceSet:
    """The resources of a job that asks for all there are: they must be free."""
    jobspec = Jobspec.from_command(["true"], ntasks=CORES, cwd="/")
    jobid = (await client.submit(jobspec)).id
    while "clean" not in await _lookup(client, jobid, "eventlog"):  # noqa: ASYNC110 - over there
        await trio.sleep(0.02)
    return ResourceSet.parse((await _lookup(client, jobid, "R")).encode())


def _is_cancel(event: Event) -> bool:
    return (event.context or {}).get("type") == "cancel"


def _names(job: Kept) -> str:
    return ", ".join(f"{event.name} {event.context or ''}".strip() for event in job.events)


def _f58(jobid: int) -> str:
    return format_fluid(jobid, "f58")
