"""Clauses that only show when everything is there: an instance in virtual time, and its trace."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from flux_trio.broker import Handle
from flux_trio.formats import Idset, Jobspec, ResourceSet, format_fluid, parse_eventlog
from flux_trio.instance import Instance
from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    Response,
    respond_error,
    service_of,
    topics,
)
from flux_trio.sim import make_machine
from flux_trio.testing import simulated_instance
from flux_trio.trace import Kind, Record
from flux_trio.trace.kvs import operations_of
from tests.support.kvs_words import commit_of, lookup_of, value_of, words
from tests.support.tracing import recorded

HOUR = 3600.0
MACHINE = make_machine(nnodes=2, cores_per_node=2)


class Watched:
    """A client of an instance, and what it can know of jobs."""

    def __init__(self, instance: Instance, handle: Handle, records: list[Record]) -> None:
        self.instance = instance
        self.records = records  # what it has traced so far
        self.handle = handle

    async def submit(self, *, ncores: int = 1, run_s: float = HOUR) -> int:
        attributes = {"system.exec.test.run_duration": run_s}
        jobspec = Jobspec.from_command(["true"], ntasks=ncores, attributes=attributes)
        answer = await self.handle.call(topics.INGEST_SUBMIT, {"jobspec": jobspec.to_json()})
        return int(answer["id"])

    async def value(self, jobid: int, name: str) -> str:
        key = f"{format_fluid(jobid, 'kvs')}.{name}"
        return value_of(await self.handle.call(topics.KVS_LOOKUP, lookup_of(key)))

    async def names(self, jobid: int) -> list[str]:
        return [event.name for event in parse_eventlog(await self.value(jobid, "eventlog"))]

    async def r(self, jobid: int) -> str:
        return ResourceSet.parse((await self.value(jobid, "R")).encode()).summary()

    async def wait(self, jobid: int, name: str) -> None:
        with trio.move_on_after(12 * HOUR):
            async with self.handle.stream(topics.INFO_WATCH, {"id": jobid}) as lines:
                async for line in lines:
                    if f'"name":"{name}"' in line["event"]:
                        return
        raise AssertionError(f"job {jobid} has no event {name}: {await self.names(jobid)}")

    async def stored(self, jobid: int) -> dict[str, str]:
        """Everything below the job's directory."""
        directory = format_fluid(jobid, "kvs")
        keys = (await self.handle.call(words().own.dir, {"prefix": directory}))["keys"]
        return {key: await self.value(jobid, key.removeprefix(f"{directory}.")) for key in keys}

    def sent(self, party: str) -> list[Any]:
        """The messages that a module has sent."""
        return [
            record.message
            for record in self.records
            if record.kind == Kind.SEND and record.party == party
        ]


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    """An instance with a client; who waits there for ever is told so at the end of the day."""
    with trio.fail_after(24 * HOUR), recorded() as records:
        async with simulated_instance(MACHINE) as instance, instance.connect() as handle:
            yield Watched(instance, handle, records)


async def test_a_scheduler_comes_and_goes_and_running_jobs_do_not_notice(autojump_clock):
    """28.disconnect.1, 28.disconnect.4, 27.criteria.3, 27.criteria.4"""
    async with watched() as w:
        running = [await w.submit(), await w.submit(ncores=2)]
        for jobid in running:
            await w.wait(jobid, "start")
        before = [await w.names(jobid) for jobid in running]
        await w.instance.supervisor.remove("sched")
        assert any(
            isinstance(sent, Request) and sent.topic == "resource.disconnect"
            for sent in w.sent("broker") + w.sent("sched")
        )
        waiting = await w.submit()
        await trio.sleep(60.0)
        await w.instance.supervisor.load("sched")
        await w.wait(waiting, "start")
        assert [await w.names(jobid) for jobid in running] == before
        held = {await w.r(jobid) for jobid in running}
        assert await w.r(waiting) not in held
        assert (await w.handle.call("sched.stats-get"))["allocated"] == 3
        for jobid in running:
            await w.wait(jobid, "clean")
            assert "exception" not in await w.names(jobid)


@pytest.mark.breaks("25.resources.7")  # it gives each job a whole node
@pytest.mark.classic("this scheduler speaks it")
async def test_a_second_scheduler_implementation_serves_the_same_job_manager(autojump_clock):
    """27.criteria.1: the least that RFC 27 asks for, one job at a time."""
    async with watched() as w:
        await w.instance.supervisor.remove("sched")
        async with w.instance.connect("least") as least, trio.open_nursery() as nursery:
            await nursery.start(serve_one_job_at_a_time, least)
            jobs = [await w.submit() for _ in range(3)]
            for jobid in jobs:
                await w.wait(jobid, "clean")
                assert "exception" not in await w.names(jobid)
            assert trio.current_time() >= 3 * HOUR
            nursery.cancel_scope.cancel()


async def serve_one_job_at_a_time(
    least: Handle, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    least.register("sched")
    async with least.stream(topics.SCHED_HELLO) as told:
        assert [each async for each in told] == []
    await least.call(topics.SCHED_READY, {"mode": "unlimited"})
    task_status.started()
    waiting: list[Request] = []
    busy = False
    while True:
        for request in await least.receive():
            if request.topic == topics.SCHED_ALLOC:
                waiting.append(request)
            elif request.topic == topics.SCHED_FREE:
                busy = False
                answer(least, request)
            else:  # sched.stats-get, a sign of life
                least.send(respond_error(request, Errno.ENOSYS))
        if waiting and not busy:
            busy = True
            await write_r(least, waiting[0])
            answer(least, waiting.pop(0), type=0)


def answer(least: Handle, request: Request, **more: int) -> None:
    assert isinstance(request.payload, dict)
    payload = {"id": request.payload["id"], **more}
    least.send(Response(request.topic, payload, routes=request.routes))


async def write_r(least: Handle, request: Request) -> None:
    assert isinstance(request.payload, dict)
    key = f"{format_fluid(request.payload['id'], 'kvs')}.R"
    r = MACHINE.restrict(Idset.parse("0")).to_json()
    await least.call(topics.KVS_COMMIT, commit_of(["put", key, json.dumps(r)]))


async def test_each_service_speaks_only_to_those_it_has_a_protocol_with(autojump_clock):
    """32.criteria.1: exec not to the scheduler, the job manager not to shells."""
    async with watched() as w:
        await w.wait(await w.submit(), "clean")
        services = {
            party: {
                service_of(message.topic)
                for message in w.sent(party)
                if isinstance(message, Request)
            }
            for party in ("job-exec", "sched", "job-manager")
        }
    store = service_of(words().own.commit)
    services = {party: asked - {store} | ({"kvs"} & {store}) for party, asked in services.items()}
    assert services == {
        # resource tells of targets that are down
        "job-exec": {"job-manager", "kvs", "resource"},
        "sched": {"job-manager", "kvs", "resource"},
        # R is judged by the inventory of resource
        "job-manager": {"job-exec", "kvs", "resource", "sched"},
    }


async def test_nobody_but_the_job_manager_moves_a_job(autojump_clock):
    """21.criteria.4: after submit, which ingest logs, it alone appends to the eventlog."""
    async with watched() as w:
        jobid = await w.submit()
        await w.wait(jobid, "clean")
        key = f"{format_fluid(jobid, 'kvs')}.eventlog"
        writers = {
            record.party: [op for op in operations_of(record.message.payload) if op[1] == key]
            for record in w.records
            if record.kind == Kind.SEND
            and isinstance(record.message, Request)
            and record.message.topic in topics.COMMITS
            and any(op[1] == key for op in operations_of(record.message.payload))
        }
    assert set(writers) == {"job-ingest", "job-manager"}
    ((_, _, submit),) = writers["job-ingest"]
    assert [event.name for event in parse_eventlog(submit)] == ["submit"]


async def test_what_is_stored_of_an_inactive_job_stays_as_it_is(autojump_clock):
    """21.criteria.5, 14.submit.5: the jobspec too, whatever happens to it or others later."""
    async with watched() as w:
        jobid = await w.submit()
        await w.wait(jobid, "clean")
        before = await w.stored(jobid)
        assert {key.rpartition(".")[2] for key in before} >= {"jobspec", "eventlog", "R"}
        raising = {"id": jobid, "severity": 0, "type": "cancel"}
        with pytest.raises(FluxError, match="inactive"):
            await w.handle.call(topics.JOB_RAISE, raising)
        await w.instance.supervisor.reload("sched")
        await w.wait(await w.submit(), "clean")
        assert await w.stored(jobid) == before
