"""A FIFO scheduler in Python, of the edition current: RFC 27 and RFC 28 on one page, as fifo.js.

`python fifo.py` inside an instance whose own scheduler was removed.
"""

from __future__ import annotations

import base64
import json
import os
import time
from dataclasses import dataclass, field
from typing import Any

import trio

from flux_trio.broker import Handle, open_remote
from flux_trio.clock import Clock
from flux_trio.formats import Hostlist, Idset, job_key
from flux_trio.messages import Errno, FluxError, Request, respond, respond_error, topics
from flux_trio.transports import connect_websocket

SUCCESS, DENY, CANCEL = 0, 2, 3

Cut = dict[int, list[int]]  # cores by rank


class Leave(Exception):
    """The program has to end (RFC 27, Hello and Ready; RFC 28, Error Response)."""


@dataclass
class Node:
    host: str
    cores: list[int]
    free: set[int]
    up: bool = False


@dataclass
class Job:
    request: Request
    id: int
    priority: int
    t_submit: float
    nnodes: int  # 0: slots are of the machine, not of each node
    exclusive: bool
    slots: int
    cores: int  # of each slot
    duration: float


@dataclass
class Fifo:
    handle: Handle
    nursery: trio.Nursery
    nodes: dict[int, Node] = field(default_factory=dict)
    queue: list[Job] = field(default_factory=list)
    given: dict[int, Cut] = field(default_factory=dict)  # by job
    granting: dict[int, Job] = field(default_factory=dict)  # jobs whose R is being stored
    is_begun: bool = False  # the first response has come

    # --- resources

    def inventory(self, execution: dict[str, Any]) -> None:
        names = [
            name for text in execution["nodelist"] for name in Hostlist.parse(text, own_widths=True)
        ]
        ranks = sorted(
            (rank, list(Idset.parse(entry["children"]["core"])))
            for entry in execution["R_lite"]
            for rank in Idset.parse(entry["rank"])
        )
        for (rank, cores), host in zip(ranks, names, strict=True):
            self.nodes[rank] = Node(host, cores, set(cores))

    def shrink(self, targets: list[int]) -> None:
        """These have left the instance; the jobs on them are not the scheduler's concern."""
        for rank in targets:
            del self.nodes[rank]
        waiting, self.queue = self.queue, []
        for job in waiting:
            if not self.denied(job):
                self.queue.append(job)

    def take(self, jobid: int, cut: Cut) -> None:
        self.given[jobid] = cut
        for rank, cores in cut.items():
            if rank in self.nodes:
                self.nodes[rank].free -= set(cores)

    def free(self, jobid: int, ranks: Idset) -> None:
        """A part of what a job holds, in whole ranks."""
        for rank in ranks:
            cores = self.given[jobid].pop(rank, [])
            if rank in self.nodes:
                self.nodes[rank].free |= set(cores)

    # --- what is given

    def place(self, job: Job, *, now: bool) -> Cut | None:
        """The cores for a job: of those that are free now, or of all."""
        found: Cut = {}
        missing = job.nnodes or job.slots
        for rank, node in sorted(self.nodes.items()):
            usable = node.free if node.up else set()
            here = sorted(usable if now else node.cores)
            if job.nnodes:
                is_whole = len(here) == len(node.cores)
                if len(here) < job.slots * job.cores or (job.exclusive and not is_whole):
                    continue
                found[rank] = here if job.exclusive else here[: job.slots * job.cores]
                missing -= 1
            elif fits := min(missing, len(here) // job.cores):
                found[rank] = here[: fits * job.cores]
                missing -= fits
            if not missing:
                return found
        return None

    def resource_set(self, job: Job, cut: Cut) -> dict[str, Any]:
        starttime = self.handle.now()
        return {
            "version": 1,
            "execution": {
                "R_lite": [
                    {"rank": str(rank), "children": {"core": str(Idset.of(cores))}}
                    for rank, cores in cut.items()
                ],
                "nodelist": [self.nodes[rank].host for rank in cut],
                "nslots": job.slots * (job.nnodes or 1),
                "starttime": starttime,
                "expiration": starttime + job.duration if job.duration else 0.0,
            },
        }

    # --- jobs

    def denied(self, job: Job) -> bool:
        if self.place(job, now=False):
            return False
        self.answer(job, DENY, note="the machine is too small for this job")
        return True

    def answer(self, job: Job, kind: int, **more: Any) -> None:
        self.respond(job.request, {"id": job.id, "type": kind, **more})

    def schedule(self) -> None:
        """Answer from the head of the queue on, as far as jobs fit."""
        self.queue.sort(key=lambda job: (-job.priority, job.t_submit, job.id))
        while self.queue and (cut := self.place(self.queue[0], now=True)):
            job = self.queue.pop(0)
            self.take(job.id, cut)
            self.granting[job.id] = job
            self.nursery.start_soon(self.grant, job, self.resource_set(job, cut))

    async def grant(self, job: Job, r: dict[str, Any]) -> None:
        data = base64.b64encode(json.dumps(r).encode()).decode()
        value = {"ver": 1, "type": "val", "data": data}  # a treeobj (RFC 11)
        put = {"key": job_key(job.id, "R"), "flags": 0, "dirent": value}
        commit = {"namespace": "primary", "flags": 0, "ops": [put]}
        await self.insist(topics.KVS_COMMIT, commit)  # before the answer
        self.handle.post((job, r))  # after the requests that have come before

    def granted(self, job: Job, r: dict[str, Any]) -> None:
        """Answer a request whose R is stored."""
        if self.granting.get(job.id) is job:  # it was not canceled meanwhile
            del self.granting[job.id]
            self.answer(job, SUCCESS, R=r)

    def asked(self, request: Request) -> None:
        payload: Any = request.payload
        match request.topic:
            case topics.SCHED_ALLOC:
                job = job_of(request)
                if not self.denied(job):
                    self.queue.append(job)
            case topics.SCHED_CANCEL:
                self.cancel(payload["id"])
            case topics.SCHED_PRIORITIZE:
                for jobid, priority in payload["jobs"]:
                    for job in self.queue:
                        if job.id == jobid:
                            job.priority = priority
            case topics.SCHED_EXPIRATION:
                self.respond(request, None)  # nothing here depends on it
            case topics.SCHED_FREE:
                self.free(payload["id"], ranks_of(payload["R"]))  # without an answer
                if payload.get("final"):
                    del self.given[payload["id"]]
            case _ if (refusal := respond_error(request, Errno.ENOSYS)) is not None:
                self.handle.send(refusal)

    def cancel(self, jobid: int) -> None:
        job = next((job for job in self.queue if job.id == jobid), None)
        if job is not None:
            self.queue.remove(job)
        elif (job := self.granting.pop(jobid, None)) is not None:
            self.free(jobid, Idset.of(self.given[jobid]))
            del self.given[jobid]
        if job is not None:  # else it has its answer
            self.answer(job, CANCEL)

    # --- messages

    def respond(self, request: Request, payload: dict[str, Any] | None) -> None:
        if (response := respond(request, payload)) is not None:
            self.handle.send(response)

    async def insist(self, topic: str, payload: dict[str, Any] | None) -> dict[str, Any]:
        try:
            return await self.handle.call(topic, payload)
        except FluxError as error:
            raise Leave(f"{topic}: {error}") from None

    async def acquire(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Take over the resources, and then what changes."""
        try:
            async with self.handle.stream(topics.RESOURCE_ACQUIRE) as changes:
                async for change in changes:
                    self.change(change)
                    if not self.is_begun:
                        self.is_begun = True
                        task_status.started()
                    self.schedule()
        except FluxError as error:
            raise Leave(f"{topics.RESOURCE_ACQUIRE}: {error}") from None

    def change(self, change: dict[str, Any]) -> None:
        up, down, shrink = (Idset.parse(change.get(key, "")) for key in ("up", "down", "shrink"))
        if "resources" in change:
            self.inventory(change["resources"]["execution"])
        self.shrink([rank for rank in shrink if rank in self.nodes])
        for rank in up:
            self.nodes[rank].up = True
        for rank in down - shrink:
            self.nodes[rank].up = False

    async def hello(self) -> None:
        try:
            wanted = {"partial-ok": True}
            async with self.handle.stream(topics.SCHED_HELLO, wanted) as allocated:
                freed = {each["id"]: each.get("free", "") async for each in allocated}
        except FluxError as error:
            raise Leave(f"{topics.SCHED_HELLO}: {error}") from None
        for jobid, free in freed.items():
            wanted = {"key": job_key(jobid, "R"), "flags": 0, "namespace": "primary"}
            found = await self.insist(topics.KVS_LOOKUP, wanted)
            r = json.loads(base64.b64decode(found["val"]["data"]))
            entries = r["execution"]["R_lite"]
            cut = {
                rank: list(Idset.parse(entry["children"]["core"]))
                for entry in entries
                for rank in Idset.parse(entry["rank"])
            }
            for rank in Idset.parse(free):  # a part of the job that was freed before
                del cut[rank]
            self.take(jobid, cut)


def ranks_of(r: dict[str, Any]) -> Idset:
    entries = r["execution"]["R_lite"]
    return Idset.of(rank for entry in entries for rank in Idset.parse(entry["rank"]))


def job_of(request: Request) -> Job:
    payload: Any = request.payload
    spec = payload["jobspec"]
    outer = spec["resources"][0]
    slot = outer["with"][0] if outer["type"] == "node" else outer
    return Job(
        request,
        payload["id"],
        payload["priority"],
        payload["t_submit"],
        outer["count"] if outer["type"] == "node" else 0,
        outer.get("exclusive", False),
        slot["count"],
        next((each["count"] for each in slot["with"] if each["type"] == "core"), 1),
        spec["attributes"].get("system", {}).get("duration", 0),
    )


async def serve(handle: Handle) -> None:
    """Serve `sched.*`. Raises Leave in a group when RFC 27 or 28 tell the program to end."""
    handle.register(topics.SCHED)
    async with trio.open_nursery() as nursery:
        fifo = Fifo(handle, nursery)
        await nursery.start(fifo.acquire)
        await fifo.hello()
        await fifo.insist(topics.SCHED_READY, {"mode": "unlimited"})
        while True:
            for message in await handle.receive():
                match message:
                    case Request():
                        fifo.asked(message)
                    case (Job() as job, dict() as r):
                        fifo.granted(job, r)
            fifo.schedule()


async def main() -> None:
    uri, token = os.environ["FLUX_TRIO_URI"], os.environ["FLUX_TRIO_TOKEN"]
    async with (
        connect_websocket(uri, token) as connection,
        open_remote("fifo", os.getuid(), connection, Clock(time.time, time.monotonic)) as handle,
    ):
        await serve(handle)


if __name__ == "__main__":
    trio.run(main)
