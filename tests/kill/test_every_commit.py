"""An instance that ends behind any of its commits, and the one that goes on from there.

What `make kill` does by chance, here at every place there is: a commit is durable, and nothing that
would have followed it has happened. Jobs are simulated; the clock is Trio's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio
from trio.testing import MockClock

from flux_trio.broker import Handle
from flux_trio.config import Config, ExecConfig
from flux_trio.cores.kvs.ops import Op
from flux_trio.formats import Jobspec, ResourceSet, format_fluid, parse_eventlog, parse_fluid
from flux_trio.instance import Surroundings, open_instance
from flux_trio.messages import topics
from flux_trio.sim import make_machine
from flux_trio.store.stores import MemoryStore
from tests.kill.findings import Kept, ended_badly, missing, overlapping, reused
from tests.kill.lives import Memory

CONFIG = Config(exec=ExecConfig(simulate=True, kill_timeout="1s"))
MACHINE = make_machine(nnodes=2, cores_per_node=2)
BEGAN = 1_000_000.0
DOWN_S = 5.0  # between the end of one and the start of the next


class Recorder(MemoryStore):
    """Remembers each commit, and when it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[tuple[float, list[Op]]] = []

    def commit(self, ops: Iterable[Op]) -> None:
        kept = list(ops)
        self.commits.append((trio.current_time(), kept))
        super().commit(kept)


class Story:
    """What was asked of the first instance, and how many commits there were at each answer."""

    def __init__(self) -> None:
        self.store = Recorder()
        self.submitted: list[tuple[int, int]] = []  # commits, job id
        self.canceled: list[tuple[int, int]] = []
        self.asked_to_cancel: set[int] = set()

    async def tell(self) -> None:
        async with opened(self.store, BEGAN) as instance, instance.connect() as handle:
            await self._submit(handle, [(30, 1), (10, 4), (20, 2), (5, 1)])
            await trio.sleep(1)
            await self._cancel(handle, self.submitted[0][1])  # runs
            await self._cancel(handle, self.submitted[1][1])  # waits
            await self._submit(handle, [(10, 2), (1, 4)])
            await handle.call(topics.JOB_URGENCY, {"id": self.submitted[-1][1], "urgency": 20})
            await at_rest(handle)

    def memory(self, ncommits: int) -> Memory:
        """What had been acknowledged behind so many commits."""
        return Memory(
            [jobid for behind, jobid in self.submitted if behind <= ncommits],
            self.asked_to_cancel,
            {jobid for behind, jobid in self.canceled if behind <= ncommits},
        )

    async def _submit(self, handle: Handle, jobs: list[tuple[float, int]]) -> None:
        for run_s, ncores in jobs:
            jobid = await submit(handle, run_s, ncores)
            self.submitted.append((len(self.store.commits), jobid))

    async def _cancel(self, handle: Handle, jobid: int) -> None:
        self.asked_to_cancel.add(jobid)
        await handle.call(
            topics.JOB_RAISE, {"id": jobid, "severity": 0, "type": "cancel", "note": ""}
        )
        self.canceled.append((len(self.store.commits), jobid))


def opened(store: MemoryStore, epoch: float) -> Any:
    given = Surroundings(inventory=MACHINE, userid=1000, epoch=epoch, store=lambda: store)
    return open_instance(CONFIG, given)


async def submit(handle: Handle, run_s: float, ncores: int) -> int:
    attributes = {"system.exec.test.run_duration": run_s}
    jobspec = Jobspec.from_command(["true"], ntasks=ncores, attributes=attributes)
    return int((await handle.call(topics.INGEST_SUBMIT, {"jobspec": jobspec.to_json()}))["id"])


async def at_rest(handle: Handle) -> None:
    while (await handle.call(topics.LIST_LIST, {"max_entries": 0, "states": 0x3F}))["jobs"]:  # noqa: ASYNC110
        await trio.sleep(1)


def kept_jobs(store: MemoryStore) -> dict[int, Kept]:
    jobs = {}
    for key in store.dir("job"):
        place, _, name = key.rpartition(".")
        if name == "eventlog" and key.count(".") == 5:
            jobid = parse_fluid(place.removeprefix("job."))
            r, log = store.lookup([f"{format_fluid(jobid, 'kvs')}.R", key])
            resources = None if r is None else ResourceSet.parse(r.encode())
            jobs[jobid] = Kept(jobid, parse_eventlog(log or ""), resources, "")
    return jobs


async def go_on(story: Story, ncommits: int) -> list[str]:
    """What is wrong when the next instance has run everything to its end."""
    store = MemoryStore()
    for _, ops in story.store.commits[:ncommits]:
        store.commit(ops)
    ended = story.store.commits[ncommits - 1][0] if ncommits else 0.0
    memory = story.memory(ncommits)
    known = kept_jobs(store).keys()
    async with opened(store, BEGAN + ended + DOWN_S) as instance, instance.connect() as handle:
        whole = await submit(handle, 1, 4)
        await at_rest(handle)
    memory.submitted.append(whole)
    jobs = kept_jobs(store)
    again = [f"id of {jobid} is below an earlier one" for jobid in known if jobid >= whole]
    return [
        *missing(memory, jobs), *reused(memory), *ended_badly(memory, jobs),
        *overlapping(list(jobs.values())), *again,
    ]  # fmt: skip


async def test_instance_that_ends_behind_any_commit_is_continued(autojump_clock: MockClock) -> None:
    "16.schema.5: nothing acknowledged is missing, nothing runs twice, nothing is held twice."
    story = Story()
    await story.tell()
    began = len(story.store.commits)
    assert began > 20
    for ncommits in range(began + 1):
        assert await go_on(story, ncommits) == [], f"behind commit {ncommits}"
