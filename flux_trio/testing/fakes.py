"""A scheduler and an execution service that a test plays itself.

They are modules like any other: they speak through a Handle, and the supervisor loads them in place
of ours. They do by themselves only what the RFCs ask for first; the rest is what the test tells
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import trio
import trio.testing

from flux_trio.broker import Handle
from flux_trio.editions import CLASSIC, Edition
from flux_trio.editions.kvs import CommitValues
from flux_trio.editions.rfc27 import AllocAnswer, AllocType
from flux_trio.editions.rfc28 import DEFAULT_GROUP, Acquire
from flux_trio.formats import Idset, ResourceSet, format_r, job_key, parse_r
from flux_trio.messages import Errno, Message, Request, Response, respond_error, topics

RETURN = object()
"""Posted to the handle of a fake: the module returns although nobody asked it to."""

_START = f"{topics.JOB_EXEC}.{topics.START_METHOD}"


class Fake(ABC):
    """A module that keeps what comes; an exception that is posted to its handle is raised."""

    def __init__(self) -> None:
        self.handle: Handle
        self.came: list[Message] = []
        """Every message so far, in order."""

    @abstractmethod
    async def run(self, handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve until cancelled; the supervisor runs this."""

    async def receive(self) -> bool:
        """Take what comes; return whether to go on."""
        for item in await self.handle.receive():
            if item is RETURN:
                return False
            if isinstance(item, Exception):
                raise item
            self.came.append(item)
            self.take(item)
        return True

    def take(self, message: Message) -> None:  # noqa: B027 - most fakes answer nothing by themselves
        """Answer at once what the test does not answer itself."""

    def asked(self, topic: str) -> list[Any]:
        """Return the ids, or pairs of id and priority, of the requests of a topic so far."""
        payloads: list[Any] = [
            m.payload for m in self.came if isinstance(m, Request) and m.topic == topic
        ]
        return [payload.get("id", payload.get("jobs")) for payload in payloads]


class FakeScheduler(Fake):
    """A scheduler that says hello and ready, and grants only when it is told to.

    `limit` is the number of alloc requests at a time (RFC 27), None: no limit. With `frees` it
    answers sched.free where the edition has an answer.
    """

    def __init__(
        self, limit: int | None = None, *, frees: bool = True, edition: Edition = CLASSIC
    ) -> None:
        super().__init__()
        self.edition = edition
        self.mode = {"mode": "unlimited"} if limit is None else {"mode": "limited", "limit": limit}
        self.frees = frees
        self.granted: list[int] = []
        """The ids of the jobs that hello has told it."""
        self._machine: list[tuple[int, int]] = []  # rank and core, of all that was acquired
        self._given: dict[int, tuple[int, int]] = {}  # job id → the one core that it was given

    async def run(self, handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve RFC 27, and RFC 28 as far as the first answer."""
        self.handle = handle
        handle.register(topics.SCHED)
        task_status.started()
        acquire = self.edition.acquire.write(Acquire(DEFAULT_GROUP))
        async with handle.stream(topics.RESOURCE_ACQUIRE, acquire) as resources:
            acquired = ResourceSet.parse((await anext(resources))["resources"])
            self._machine = [
                (rank, core) for rank in acquired.ranks for core in acquired.cores(rank)
            ]
            async with handle.stream(topics.SCHED_HELLO) as jobs:
                self.granted = [job["id"] async for job in jobs]
            await handle.call(topics.SCHED_READY, self.mode)
            while await self.receive():
                pass

    def take(self, message: Message) -> None:
        """Answer a free, and that it has no other methods."""
        if isinstance(message, Request) and message.topic == topics.SCHED_EXPLAIN:
            refusal = respond_error(message, Errno.ENOSYS, f"no method {message.topic}")
            assert refusal is not None
            self.handle.send(refusal)
        if isinstance(message, Request) and message.topic == topics.SCHED_FREE:
            assert isinstance(message.payload, dict)
            jobid = message.payload["id"]
            self._given.pop(jobid, None)
            if self.frees and self.edition.free_answer is not None:
                self.say(topics.SCHED_FREE, {"id": jobid})

    def say(self, topic: str, payload: Any, errnum: int = 0) -> None:
        """Answer the job manager."""
        self.handle.send(Response(topic, payload, errnum, routes=(topics.JOB_MANAGER,)))

    def answer(self, jobid: int, kind: AllocType, **more: Any) -> None:
        """Answer sched.alloc."""
        self.say(topics.SCHED_ALLOC, {"id": jobid, "type": int(kind), **more})

    async def write(self, jobid: int, cores: dict[int, int] | None = None) -> ResourceSet:
        """Write R: so many cores of each rank, from core 0 on; without `cores`, one free core."""
        if cores is None:
            rank, core = self._given[jobid] = self._free_place()
            bits = {rank: 1 << core}
        else:
            bits = {rank: (1 << n) - 1 for rank, n in cores.items()}
        text = r_of(bits, self.handle.now())
        put = CommitValues([["put", job_key(jobid, "R"), text]])
        await self.handle.call(topics.KVS_COMMIT, self.edition.kvs.commit(put))
        return parse_r(text)

    def _free_place(self) -> tuple[int, int]:
        taken = self._given.values()
        for place in self._machine:
            if place not in taken:
                return place
        ranks = Idset.of(rank for rank, _ in self._machine)
        raise AssertionError(
            f"expected a free core: all {len(self._machine)} of the ranks {ranks} are allocated"
        )

    async def grant(self, jobid: int, cores: dict[int, int] | None = None) -> None:
        """Write R, then answer SUCCESS; return when nothing more happens by itself."""
        granted = AllocAnswer(jobid, AllocType.SUCCESS, R=await self.write(jobid, cores))
        self.say(topics.SCHED_ALLOC, self.edition.alloc_answer.write(granted))
        await trio.testing.wait_all_tasks_blocked()


def r_of(cores: dict[int, int], now: float) -> str:
    """Return R of these cores, as bit sets, of each rank, granted at `now`."""
    entries = [(rank, bits, 0) for rank, bits in cores.items()]
    resources = ResourceSet.build(entries, "node{}".format, starttime=now)
    return format_r(resources.with_nslots(resources.ncores))


class FakeExec(Fake):
    """An execution service that says hello, and answers starts only when it is told to."""

    async def run(self, handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve RFC 32."""
        self.handle = handle
        handle.register(topics.JOB_EXEC)
        task_status.started()
        await handle.call(topics.EXEC_HELLO, {"service": topics.JOB_EXEC})
        while await self.receive():
            pass

    def starts(self) -> list[tuple[int, bool]]:
        """Return for each start request so far: id, reattach."""
        payloads: list[Any] = [
            m.payload for m in self.came if isinstance(m, Request) and m.topic == _START
        ]
        return [(payload["id"], payload["reattach"]) for payload in payloads]

    def say(self, payload: Any, errnum: int = 0) -> None:
        """Answer the job manager."""
        self.handle.send(Response(_START, payload, errnum, routes=(topics.JOB_MANAGER,)))

    def tell(self, jobid: int, *kinds: str, ranks: str = "0") -> None:
        """Answer a start: `start`, `finish`, `release` (of `ranks`, final) or `exception`."""
        data: dict[str, dict[str, Any]] = {
            "start": {},
            "finish": {"status": 0},
            "release": {"ranks": ranks, "final": True},
            "exception": {"severity": 0, "type": "exec", "note": "as asked"},
        }
        for kind in kinds:
            self.say({"id": jobid, "type": kind, "data": data[kind]})
