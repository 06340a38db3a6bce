"""Scheduling: modes, reloads, and a scheduler played by hand, which says what ours never does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from flux_trio.broker import Handle
from flux_trio.config import Config, ExecConfig, SchedConfig
from flux_trio.formats import ResourceSet, format_fluid
from flux_trio.instance import MODULES
from flux_trio.messages import (
    Errno,
    Flag,
    FluxError,
    Request,
    Response,
    respond,
    respond_error,
    topics,
)
from flux_trio.messages.types import NORESPONSE
from flux_trio.sim import make_machine
from flux_trio.testing import EPOCH
from flux_trio.trace import Record
from tests.support.judged import hand_made, made
from tests.support.scenarios import Stage, breaking, made_scenario, scenario

BY_HAND = tuple(name for name in MODULES if name != "sched")
LIMITED = Config(exec=ExecConfig(simulate=True), sched=SchedConfig(mode="limited", limit=2))
EASY = Config(exec=ExecConfig(simulate=True), sched=SchedConfig(policy="easy"))
BOUNDED = make_machine(2, 2).with_times(EPOCH, EPOCH + 1000.0)


class Scheduler:
    """A scheduler that does what it is told to do."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.allocs: dict[int, Request] = {}  # open, by job
        self.requests: list[Request] = []  # all that were taken up
        self.ends = 0.0  # the expiration of R

    async def attach(self, **ready: Any) -> list[int]:
        """Acquire, hello, ready; the jobs that hold resources."""
        async with self.handle.stream(topics.RESOURCE_ACQUIRE, {"group": "default"}) as answers:
            async for _grow in answers:
                break
        async with self.handle.stream(topics.SCHED_HELLO) as answers:
            told = [int(answer["id"]) async for answer in answers]
        await self.handle.call(topics.SCHED_READY, ready or {"mode": "unlimited"})
        return told

    async def take(self) -> list[Request]:
        """Take up what waits, at least one request."""
        taken = [each for each in await self.handle.receive() if isinstance(each, Request)]
        for request in taken:
            if request.topic == topics.SCHED_ALLOC:
                assert isinstance(request.payload, dict)
                self.allocs[request.payload["id"]] = request
        self.requests += taken
        return taken

    async def store(self, jobid: int, rank: int, cores: int = 1) -> None:
        """Commit R: cores, a bit set, of a rank."""
        resources = ResourceSet.build([(rank, cores, 0)], lambda rank: f"node{rank}")
        text = msgspec.json.encode(resources.with_times(EPOCH, self.ends).to_json()).decode()
        ops = [["put", f"{format_fluid(jobid, 'kvs')}.R", text]]
        await self.handle.call(topics.KVS_COMMIT, {"ops": ops})

    def answer(self, jobid: int, kind: int, **more: Any) -> None:
        """One answer to the job's sched.alloc."""
        request = self.allocs[jobid] if kind == 1 else self.allocs.pop(jobid)
        self._send(respond(request, {"id": jobid, "type": kind, **more}))

    def free(self) -> None:
        """Answer every sched.free that was taken up last."""
        for request in self.requests:
            if request.topic == topics.SCHED_FREE:
                assert isinstance(request.payload, dict)
                self._send(respond(request, {"id": request.payload["id"]}))
        self.requests.clear()

    def answer_expiration(self, errnum: int = 0) -> None:
        """Answer the sched.expiration that was taken up last."""
        request = self.requests.pop()
        assert request.topic == topics.SCHED_EXPIRATION
        self._send(respond_error(request, errnum, "no") if errnum else respond(request))

    def _send(self, response: Response | None) -> None:
        assert response is not None
        self.handle.send(response)


@asynccontextmanager
async def scheduler(stage: Stage, name: str = "by-hand") -> AsyncIterator[Scheduler]:
    """A client that has taken the service name `sched`."""
    async with stage.instance.connect(name) as handle:
        handle.register(topics.SCHED)
        yield Scheduler(handle)


@scenario(config=LIMITED)
async def limited_mode(stage: Stage) -> None:
    """Two requests at a time: a better job takes the place of a waiting one."""
    await stage.submit(20.0, ntasks=4)
    for _ in range(3):
        await stage.submit(5.0, ntasks=4)
    await stage.settle()
    await stage.submit(5.0, ntasks=2, urgency=30)
    await stage.settle()
    await stage.call(topics.JOB_QUEUE_START, start=False)
    await stage.settle()
    await stage.call(topics.JOB_QUEUE_START, start=True)
    await stage.settle(60.0)


@scenario(config=EASY)
async def backfill(stage: Stage) -> None:
    """Estimates of start times, and jobs whose priority changes while they wait."""
    await stage.settle(0.25)
    await stage.submit(20.0, duration=20.0, ntasks=3)
    first = await stage.submit(20.0, duration=20.0, ntasks=4)
    second = await stage.submit(20.0, duration=20.0, ntasks=4)
    await stage.submit(5.0, duration=5.0)
    await stage.settle()
    await stage.set_urgency(second, 31)
    await stage.set_urgency(first, 0)
    await stage.settle()
    await stage.set_urgency(first, 16)
    await stage.reload("sched")
    await stage.settle(80.0)


@scenario(modules=BY_HAND)
async def answers_by_hand(stage: Stage) -> None:
    """Annotations of every kind, SUCCESS out of order and without annotations, plain DENY."""
    first, second = [await stage.submit(5.0) for _ in range(2)]
    third = await stage.submit(5.0, ntasks=1000)
    async with scheduler(stage) as hand:
        assert await hand.attach() == []
        while len(hand.allocs) < 3:
            await hand.take()
        sched = {"t_estimate": EPOCH + 9.0, "queue": "batch", "reason_pending": "later", "x": [1]}
        hand.answer(first, 1, annotations={"sched": sched, "user": {"mood": "calm"}})
        hand.answer(third, 2)
        await stage.settle()
        for jobid, rank in ((second, 0), (first, 1)):
            await hand.store(jobid, rank)
        hand.answer(second, 0)
        nulls = {"t_estimate": None, "reason_pending": None}
        hand.answer(first, 0, annotations={"sched": nulls})
        await stage.settle(6.0)
        await hand.take()
        hand.free()
        await stage.settle()


@scenario(modules=BY_HAND)
async def cancels_that_cross(stage: Stage) -> None:
    """SUCCESS while sched.cancel is on its way: for a job that is over, and one that still waits.

    A sched.cancel and a sched.prioritize reach a scheduler that has no such request any more.
    """
    over, waits, changed = [await stage.submit(5.0) for _ in range(3)]
    async with scheduler(stage) as hand:
        await hand.attach()
        while len(hand.allocs) < 3:
            await hand.take()
        for jobid, rank, core in ((over, 0, 0), (waits, 0, 1), (changed, 1, 0)):
            await hand.store(jobid, rank, 1 << core)
        await stage.cancel(over)
        await stage.call(topics.JOB_QUEUE_START, start=False)
        await stage.settle()
        for jobid in (over, waits):
            hand.answer(jobid, 0)
        await hand.take()
        hand.answer(changed, 3)
        await stage.call(topics.JOB_QUEUE_START, start=True)
        await stage.settle()
        await hand.take()
        hand.free()
        await stage.set_urgency(changed, 20)
        hand.answer(changed, 0)
        await stage.settle(6.0)
        await hand.take()
        hand.free()
        await stage.settle()


@scenario(modules=BY_HAND)
@breaking("unexplained.error-response")
async def requests_never_taken_up(stage: Stage) -> None:
    """A scheduler goes without having taken up an alloc, and the next without a free."""
    job = await stage.submit(5.0)
    async with scheduler(stage, "first") as hand:
        await hand.attach()
        await stage.settle()
    await stage.settle()
    async with scheduler(stage, "second") as hand:
        assert await hand.attach() == []
        await hand.take()
        await hand.store(job, 0)
        hand.answer(job, 0)
        await stage.settle(6.0)
    await stage.settle()
    other = await stage.submit(5.0)
    async with scheduler(stage, "third") as hand:
        assert await hand.attach() == [job]
        while other not in hand.allocs:
            await hand.take()
        hand.free()
        await hand.store(other, 1)
        hand.answer(other, 0)
        await stage.settle(6.0)
        await hand.take()
        hand.free()
        await stage.settle()


@scenario(modules=BY_HAND, machine=BOUNDED)
async def expirations_by_hand(stage: Stage) -> None:
    """New expirations that are allowed, refused, not implemented; and beyond the instance's end."""
    job = await stage.submit(50.0)
    async with scheduler(stage) as hand:
        hand.ends = EPOCH + 1000.0
        await hand.attach()
        await hand.take()
        await hand.store(job, 0)
        hand.answer(job, 0)
        await stage.settle()
        for duration, errnum in ((100.0, 0), (200.0, Errno.ENOSYS), (2000.0, Errno.EINVAL)):
            async with stage.instance.connect("asker") as asker:
                tag = 1
                updates = {"attributes.system.duration": duration}
                payload = {"id": job, "updates": updates}
                asker.send(Request(topics.JOB_UPDATE, payload, tag))
                await hand.take()
                hand.answer_expiration(errnum)
                await asker.receive()
        other = await stage.submit(5.0)
        await hand.take()
        hand.answer(other, 2, note="not today")
        await stage.settle(60.0)
        await hand.take()
        hand.free()
        await stage.settle()


@scenario()
async def expiration_without_scheduler(stage: Stage) -> None:
    """A running job gets another duration while no scheduler is there to be asked."""
    job = await stage.submit(30.0, duration=40.0)
    await stage.settle()
    await stage.remove("sched")
    updates = {"attributes.system.duration": 60.0}
    try:
        await stage.call(topics.JOB_UPDATE, id=job, updates=updates)
    except FluxError:
        await stage.settle()
    await stage.load("sched")
    await stage.settle(60.0)


def _asks(topic: str, payload: Any = None, flags: Flag = Flag.NONE, tag: int = 1) -> list[Record]:
    return made("by-hand", "job-manager", Request(topic, payload, tag, int(flags)))


def _is_told(topic: str, errnum: int, tag: int = 1) -> list[Record]:
    response = Response(topic, None, errnum, tag)
    return made("job-manager", "by-hand", response)


_GOES = made("by-hand", "job-manager", Request(topics.JOB_MANAGER_DISCONNECT, flags=NORESPONSE))


@made_scenario
@breaking("unexplained.error-response")
def refused_hello() -> list[Record]:
    """A job manager that refuses hello for a reason of its own."""
    hello = _asks(topics.SCHED_HELLO, flags=Flag.STREAMING)
    return hand_made(hello, _is_told(topics.SCHED_HELLO, Errno.EPERM), _GOES)


@breaking("27.ready.11")
@made_scenario
def refused_ready() -> list[Record]:
    """A job manager that refuses a ready without need."""
    return hand_made(
        _asks(topics.SCHED_HELLO, flags=Flag.STREAMING),
        _is_told(topics.SCHED_HELLO, Errno.ENODATA),
        _asks(topics.SCHED_READY, {"mode": "unlimited"}, tag=2),
        _is_told(topics.SCHED_READY, Errno.EPERM, tag=2),
        _GOES,
    )
