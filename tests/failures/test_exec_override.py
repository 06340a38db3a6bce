"""What happens beside an override of the built-in execution service, and when it leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from flux_trio.broker import Handle
from flux_trio.cores.exec.calls import PLACE_S
from flux_trio.messages import Response, topics
from flux_trio.testing.fakes import FakeScheduler
from tests.support.failing import HOUR, Scene, allocated, scene, settle

OVERRIDE = "other-exec"


class Override:
    """An execution service beside job-exec, which is loaded."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    async def hello(self) -> None:
        """Take the place."""
        await self.handle.call(topics.BROKER_REGISTER, {"service": OVERRIDE})
        await self.handle.call(topics.EXEC_HELLO, {"service": OVERRIDE})

    async def starts(self) -> list[tuple[int, bool]]:
        """The starts that it has got since the last call, each with `reattach`."""
        messages: list[Any] = await self.handle.receive_for(0.0)
        asked = [m for m in messages if m.topic == f"{OVERRIDE}.{topics.START_METHOD}"]
        return [(m.payload["id"], m.payload["reattach"]) for m in asked]

    def tell(self, jobid: int, kind: str, **data: Any) -> None:
        """Answer a start."""
        payload = {"id": jobid, "type": kind, "data": data}
        topic = f"{OVERRIDE}.{topics.START_METHOD}"
        self.handle.send(Response(topic, payload, routes=(topics.JOB_MANAGER,)))

    async def end(self, jobid: int) -> None:
        """The job's end, whole."""
        self.tell(jobid, "finish", status=0)
        self.tell(jobid, "release", ranks="0", final=True)
        await settle()


@asynccontextmanager
async def overridden() -> AsyncIterator[tuple[Scene, FakeScheduler, Override, AsyncExitStack]]:
    """An instance with an override; the stack has its connection."""
    async with scene(("sched",)) as s, AsyncExitStack() as connection:
        sched = FakeScheduler()
        await s.load("sched", sched)
        override = Override(await connection.enter_async_context(s.instance.connect("other")))
        await override.hello()
        yield s, sched, override, connection


async def serving(s: Scene) -> str:
    return str((await s.stats())["exec"]["service"])


async def test_override_is_never_replaced_by_the_built_in_service(
    autojump_clock: MockClock,
) -> None:
    """readings: Exec override at start."""
    async with overridden() as (s, sched, override, _):
        await trio.sleep(HOUR)
        jobid = await allocated(s, sched)
        assert await override.starts() == [(jobid, False)]
        override.tell(jobid, "start")
        await override.end(jobid)
        assert (await s.events(jobid))[-1] == "clean"
        assert await serving(s) == OVERRIDE


async def test_built_in_service_takes_over_when_the_override_leaves(
    autojump_clock: MockClock,
) -> None:
    async with overridden() as (s, sched, override, connection):
        ended = await allocated(s, sched)
        assert await override.starts() == [(ended, False)]
        override.tell(ended, "start")
        await override.end(ended)
        waits = await allocated(s, sched)  # its start was sent, and is not answered
        await connection.aclose()
        await s.wait(waits)
        assert await serving(s) == topics.JOB_EXEC


async def test_jobs_that_an_override_has_started_wait_for_a_service_of_their_own(
    autojump_clock: MockClock,
) -> None:
    async with overridden() as (s, sched, override, connection):
        runs, ended = await allocated(s, sched), await allocated(s, sched)
        assert await override.starts() == [(runs, False), (ended, False)]
        for jobid in (runs, ended):
            override.tell(jobid, "start")
        override.tell(ended, "finish", status=0)
        await settle()
        await connection.aclose()
        later = await allocated(s, sched)
        await trio.sleep(HOUR)
        assert await serving(s) == ""
        assert (await s.events(runs))[-1] == "start"
        assert (await s.events(ended))[-1] == "clean", "no process of it is left"
        assert (await s.events(later))[-1] == "alloc"
        async with s.instance.connect("again") as handle:
            again = Override(handle)
            await again.hello()
            assert await again.starts() == [(runs, True), (later, False)]
            await again.end(runs)
            again.tell(later, "start")
            await again.end(later)
        await trio.sleep(PLACE_S)
        await settle()
        assert await serving(s) == topics.JOB_EXEC


async def test_reload_of_the_built_in_service_is_asked_for(autojump_clock: MockClock) -> None:
    async with overridden() as (s, sched, _, connection):
        await s.supervisor.reload("job-exec")
        await settle()
        assert await serving(s) == topics.JOB_EXEC
        await s.wait(await allocated(s, sched))
        await connection.aclose()
        assert await serving(s) == topics.JOB_EXEC


@pytest.mark.parametrize("stays", [True, False])
async def test_built_in_service_leaves_the_next_job_manager_to_the_override(
    autojump_clock: MockClock, stays: bool
) -> None:
    async with overridden() as (s, _sched, override, connection):
        await s.supervisor.remove("job-manager")
        if not stays:
            await connection.aclose()
        await s.supervisor.load("job-manager")
        await settle()
        assert await serving(s) == ""
        if stays:
            await trio.sleep(1)
            await override.handle.call(topics.EXEC_HELLO, {"service": OVERRIDE})
        await trio.sleep(10)
        assert await serving(s) == (OVERRIDE if stays else topics.JOB_EXEC)


async def test_who_runs_jobs_may_be_asked(autojump_clock: MockClock) -> None:
    async with overridden() as (s, _sched, _override, connection):
        asked = await s.call(topics.EXEC_SERVICE)
        assert asked == {"service": OVERRIDE, "vacant": False}
        await connection.aclose()
        await settle()
        assert await s.call(topics.EXEC_SERVICE) == {"service": "", "vacant": True}
        await trio.sleep(PLACE_S)
        await settle()
        asked = await s.call(topics.EXEC_SERVICE)
        assert asked == {"service": topics.JOB_EXEC, "vacant": False}


async def test_another_override_goes_first_when_one_has_left(autojump_clock: MockClock) -> None:
    async with overridden() as (s, sched, _override, connection):
        await connection.aclose()
        await settle()
        async with s.instance.connect("second") as handle:
            second = Override(handle)
            await second.hello()
            await trio.sleep(2 * PLACE_S)
            jobid = await allocated(s, sched)
            assert await second.starts() == [(jobid, False)]
            second.tell(jobid, "start")
            await second.end(jobid)
            assert await serving(s) == OVERRIDE
