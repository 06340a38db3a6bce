"""Execution: services that come and go, jobs that fail, and one service played by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from flux_trio.broker import Handle
from flux_trio.formats import Event, format_eventlog, job_key
from flux_trio.instance import MODULES
from flux_trio.messages import Errno, FluxError, Request, respond, topics
from tests.support.scenarios import Stage, breaking, scenario

BY_HAND = tuple(name for name in MODULES if name != "job-exec")


class Executor:
    """An execution service that says what it is told to say."""

    def __init__(self, handle: Handle, service: str) -> None:
        self.handle = handle
        self.service = service
        self.starts: dict[int, Request] = {}

    async def hello(self) -> int:
        """Register; the errnum of the answer."""
        try:
            await self.handle.call(topics.EXEC_HELLO, {"service": self.service})
        except FluxError as error:
            return error.errnum
        return 0

    async def take(self) -> int:
        """Take up start requests, at least one; the job of the last."""
        for message in await self.handle.receive():
            if isinstance(message, Request) and message.topic == f"{self.service}.start":
                self.starts[message.payload["id"]] = message
        return max(self.starts)

    def say(self, jobid: int, kind: str, **data: Any) -> None:
        """One answer."""
        answer = respond(self.starts[jobid], {"id": jobid, "type": kind, "data": data})
        assert answer is not None
        self.handle.send(answer)

    async def log(self, jobid: int, how: str, *events: tuple[str, dict[str, Any]]) -> None:
        """Write to the job's own eventlog."""
        now = trio.current_time()
        lines = [Event(now, name, context) for name, context in events]
        key = job_key(jobid, "guest.exec.eventlog")
        await self.handle.call(topics.KVS_COMMIT, {"ops": [[how, key, format_eventlog(lines)]]})

    def end(self, jobid: int, ranks: str = "0") -> None:
        """The job has run well."""
        self.say(jobid, "finish", status=0)
        self.say(jobid, "release", ranks=ranks, final=True)


@asynccontextmanager
async def executor(stage: Stage, service: str) -> AsyncIterator[Executor]:
    """A client that has taken the service name."""
    async with stage.instance.connect(service) as handle:
        handle.register(service)
        yield Executor(handle, service)


@scenario(modules=BY_HAND)
async def execution_by_hand(stage: Stage) -> None:
    """Partial releases, exceptions before start and after finish, with a note and without."""
    wide = await stage.submit(ntasks=4)
    async with executor(stage, "sim-exec") as hand:
        assert await hand.hello() == 0
        await hand.take()
        hand.say(wide, "start")
        hand.say(wide, "exception", severity=3, type="mind", note="a remark")
        await stage.settle()
        hand.say(wide, "finish", status=256)
        hand.say(wide, "exception", severity=2, type="late")
        hand.say(wide, "release", ranks="1", final=False)
        await stage.settle()
        hand.say(wide, "release", ranks="0", final=True)
        await stage.settle()
        broken = await stage.submit()
        await hand.take()
        hand.say(broken, "exception", severity=0, type="exec", note="no shell")
        hand.say(broken, "release", ranks="0", final=True)
        await stage.settle()


@scenario(modules=BY_HAND)
async def shells_in_the_log(stage: Stage) -> None:
    """The service tells in the job's own log of its shells, before and after it says finish."""
    async with executor(stage, "sim-exec") as hand:
        assert await hand.hello() == 0
        for is_first in (True, False):
            job = await stage.submit(ntasks=4)
            await hand.take()
            hand.say(job, "start")
            await hand.log(job, "put", ("shell.init", {"leader-rank": 0, "size": 2}))
            ends = [("shell-exit", {"rank": 0, "wait_status": 0}), ("complete", {"status": 256})]
            if is_first:
                await hand.log(job, "append", *ends)
            hand.say(job, "finish", status=256)
            if not is_first:
                await hand.log(job, "append", *ends)
            hand.say(job, "release", ranks="0-1", final=True)
            await stage.settle()


@scenario(modules=BY_HAND)
async def execution_taken_over(stage: Stage) -> None:
    """A second service is refused while the first is busy, and taken when it is not."""
    async with executor(stage, "sim-exec") as first, executor(stage, "job-exec") as second:
        assert await first.hello() == 0
        job = await stage.submit()
        await first.take()
        first.say(job, "start")
        await stage.settle()
        assert await second.hello() == Errno.EINVAL
        first.end(job)
        await stage.settle()
    async with executor(stage, "other-exec") as third:
        assert await third.hello() == 0
        job = await stage.submit()
        await third.take()
        third.say(job, "start")
        third.end(job)
        await stage.settle()
        async with executor(stage, "last-exec") as last:
            assert await last.hello() == 0
            job = await stage.submit()
            await last.take()
            last.say(job, "start")
            last.end(job)
            await stage.settle()


@scenario(modules=BY_HAND)
@breaking("unexplained.error-response")
async def execution_fatality(stage: Stage) -> None:
    """The service goes with a start request that it had not taken up: the broker answers it."""
    async with executor(stage, "sim-exec") as hand:
        assert await hand.hello() == 0
        running = await stage.submit()
        await hand.take()
        hand.say(running, "start")
        lost = await stage.submit()
        await stage.settle()
    await stage.submit()
    await stage.settle()
    async with executor(stage, "sim-exec") as hand:
        assert await hand.hello() == 0
        await stage.settle()
        await hand.take()
        assert len(hand.starts) == 3
        for job in sorted(hand.starts):
            if job != running:
                hand.say(job, "start")
            hand.end(job, ranks="0" if job <= lost else "1")
        await stage.settle()


@scenario()
async def execution_reload(stage: Stage) -> None:
    """The service goes while jobs run, one ends meanwhile by cancel, and comes back."""
    await stage.submit(30.0)
    canceled = await stage.submit(30.0)
    await stage.settle()
    await stage.remove("job-exec")
    waits = await stage.submit(5.0)
    await stage.cancel(canceled)
    await stage.settle()
    assert waits
    await stage.load("job-exec")
    await stage.settle(60.0)


@scenario()
async def execution_failures(stage: Stage) -> None:
    """Jobs that fail before they start and while they run, and one that runs out of time."""
    for phase in ("init", "starting", "run"):
        await stage.submit_test({"mock_exception": phase})
    await stage.submit(60.0, duration=5.0)
    await stage.settle(10.0)
    minor = await stage.submit(5.0)
    await stage.call(topics.JOB_RAISE, id=minor, type="mind", severity=3, note="minor")
    await stage.settle(10.0)


@scenario()
async def manager_reload(stage: Stage) -> None:
    """The job manager goes and comes back: one job runs, one waits, one is held."""
    await stage.submit(30.0, ntasks=4)
    await stage.submit(5.0)
    await stage.submit(5.0, urgency=0)
    await stage.settle()
    await stage.reload("job-manager")
    await trio.sleep(60.0)
    await stage.settle()
