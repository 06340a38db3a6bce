"""Clauses about queues and resources that only show when everything is there."""

from __future__ import annotations

import ast
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest
import trio

from flux_trio import jobtap
from flux_trio.broker import Handle
from flux_trio.cli.connection import job_query
from flux_trio.cli.jobs import job_rows, jobs
from flux_trio.cli.submit import submission, submit, submit_options
from flux_trio.config import Config, parse_config
from flux_trio.formats import Event, Jobspec, ResourceSet, format_fluid, parse_eventlog
from flux_trio.messages import FluxError, topics
from flux_trio.sim import make_machine
from flux_trio.testing import simulated_instance
from flux_trio.trace import Kind
from tests.support.configured import refusal_of
from tests.support.kvs_words import lookup_of, value_of
from tests.support.tracing import recorded

HOUR = 3600.0
ONE_CORE = make_machine(nnodes=1, cores_per_node=1)

# The use cases of RFC 33, Background, in its order.
USE_CASES = """
[policy.jobspec.defaults.system]
queue = "batch"
[policy.limits]
duration = "1h"
[queues.debug]
requires = { properties = ["debug"] }
[queues.debug.policy.limits]
duration = "1m"
[queues.dedicated]
started = false
[queues.batch.policy.scheduler]
queue-policy = "fifo"
[queues.members.policy.access]
allow-group = ["members"]
[queues.exempt.policy.limits]
duration = "0"
"""


class Stage:
    """A client of an instance."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    async def submit(self, *, run_s: float = 60.0, urgency: int = 16, **system: Any) -> int:
        attributes = {"system.exec.test.run_duration": run_s}
        attributes |= {f"system.{key}": value for key, value in system.items()}
        jobspec = Jobspec.from_command(["true"], attributes=attributes)
        payload = {"jobspec": jobspec.to_json(), "urgency": urgency}
        return int((await self.handle.call(topics.INGEST_SUBMIT, payload))["id"])

    async def refusal(self, **system: Any) -> str | None:
        """Why a job is refused, None if it is not."""
        try:
            await self.submit(**system)
        except FluxError as error:
            return str(error)
        return None

    async def log(self, jobid: int) -> dict[str, Event]:
        """The events of a job by name, the last of each."""
        text = await self.value(jobid, "eventlog")
        return {event.name: event for event in parse_eventlog(text)}

    async def value(self, jobid: int, name: str) -> str:
        key = f"{format_fluid(jobid, 'kvs')}.{name}"
        return value_of(await self.handle.call(topics.KVS_LOOKUP, lookup_of(key)))


@asynccontextmanager
async def staged(config: Config, *plugins: jobtap.Plugin) -> AsyncIterator[Stage]:
    """An instance of one core."""
    with trio.fail_after(24 * HOUR):
        async with (
            simulated_instance(ONE_CORE, config, plugins) as instance,
            instance.connect() as handle,
        ):
            yield Stage(handle)


def test_the_use_cases_need_nothing_but_configuration():
    """33.criteria.1"""
    assert refusal_of(USE_CASES) is None
    names = ["batch", "debug", "dedicated", "exempt", "members"]
    assert sorted(parse_config(USE_CASES).queues) == names


async def test_queues_of_the_same_resources_have_limits_of_their_own(autojump_clock):
    """33.background.3"""
    config = parse_config("""
[queues.short.policy.limits]
duration = "1m"
[queues.long.policy.limits]
duration = "1h"
[policy.jobspec.defaults.system]
queue = "short"
""")
    async with staged(config) as stage:
        assert await stage.refusal(queue="long", duration=600.0) is None
        refusal = await stage.refusal(queue="short", duration=600.0)
        assert refusal is not None
        assert "exceeds policy limit of 1m for queue short" in refusal


@pytest.mark.classic("no event tells of a default")
async def test_job_without_the_key_duration_gets_the_default_or_is_refused(autojump_clock):
    """25.attributes.2, and readings: The key duration. The stored jobspec stays as it was."""
    jobspec = Jobspec.from_command(["true"]).to_json()
    del jobspec["attributes"]["system"]["duration"]
    submit = {"jobspec": jobspec}
    async with staged(Config()) as stage:
        with pytest.raises(FluxError, match=r"^attributes\.system\.duration: expected a number"):
            await stage.handle.call(topics.INGEST_SUBMIT, submit)
    async with staged(parse_config("[policy.jobspec.defaults.system]\nduration = '2s'")) as stage:
        job = (await stage.handle.call(topics.INGEST_SUBMIT, submit))["id"]
        await trio.sleep(10.0)
        assert "duration" not in await stage.value(job, "jobspec")
        r = ResourceSet.parse((await stage.value(job, "R")).encode())
        assert r.expiration == pytest.approx(r.starttime + 2.0)


async def test_a_job_is_expedited_in_the_queue_that_it_is_in(autojump_clock):
    """33.criteria.6, 14.attributes.5"""
    config = parse_config("[queues.batch]")
    async with staged(config) as stage:
        await stage.submit(queue="batch", duration=90.0)
        first, second = [await stage.submit(queue="batch", duration=90.0) for _ in range(2)]
        await stage.handle.call(topics.JOB_URGENCY, {"id": second, "urgency": 31})
        await trio.sleep(90.0)
        assert "alloc" in await stage.log(second)
        assert "alloc" not in await stage.log(first)
        with pytest.raises(FluxError, match="Invalid queue 'other' specified"):
            await stage.submit(queue="other")


@pytest.mark.parametrize(
    "tool", [submit, submission, submit_options, jobs, job_query, job_rows], ids=str
)
@pytest.mark.classic("what sets the edition reads it")
def test_tools_that_submit_and_list_read_no_configuration(tool: ModuleType):
    """33.tools.1"""
    nodes = list(ast.walk(ast.parse(inspect.getsource(tool))))
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not [name for name in imported if name and name.startswith("flux_trio.config")]


@pytest.mark.parametrize("scheme", ["string", "fluid"])
async def test_reserved_dependency_schemes_are_refused_by_name(autojump_clock, scheme):
    """26.schemes.8: no plugin here knows them, with their keys or without."""
    whole = {"scheme": scheme, "value": "x", "type": "in", "scope": "user"}
    async with staged(Config()) as stage:
        for each in ({"scheme": scheme, "value": "x"}, whole):
            with pytest.raises(FluxError, match=f'dependency scheme "{scheme}" not supported'):
                await stage.submit(dependencies=[each])


class Looks(jobtap.Plugin):
    """Keeps what it sees of a job's R."""

    name = "looks"

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @jobtap.on("job.state.sched", "job.state.run", "job.state.cleanup")
    def look(self, job: jobtap.Job) -> None:
        """Note it."""
        self.seen.append(job.R)


async def test_plugins_scheduler_and_execution_service_find_the_r_of_a_job(autojump_clock):
    """20.overview.4"""
    looks = Looks()
    async with staged(Config(), looks) as stage:
        job = await stage.submit()
        await trio.sleep(10.0)
        stored = await stage.value(job, "R")
        assert ResourceSet.parse(stored.encode()).summary() == "rank0/core0"
        await trio.sleep(120.0)
        assert looks.seen[0] is None
        ranks = [each and each["execution"]["R_lite"][0]["rank"] for each in looks.seen[1:]]
        assert ranks == ["0", "0"]
        assert "finish" in await stage.log(job)


async def test_a_new_duration_is_what_scheduler_and_execution_service_go_by(autojump_clock):
    """20.overview.5: the job that waits starts, and the job ends, at the new time."""
    async with staged(Config()) as stage:
        job = await stage.submit(run_s=HOUR, duration=100.0)
        waiting = await stage.submit(duration=100.0)
        await trio.sleep(10.0)
        updates = {"attributes.system.duration": 300.0}
        await stage.handle.call(topics.JOB_UPDATE, {"id": job, "updates": updates})
        await trio.sleep(200.0)
        assert "exception" not in await stage.log(job)
        await trio.sleep(200.0)
        log = await stage.log(job)
        expiration = log["resource-update"].context["expiration"]
        assert expiration == pytest.approx(log["alloc"].timestamp + 300.0, abs=2.0)
        assert log["exception"].context["type"] == "timeout"
        assert log["exception"].timestamp == pytest.approx(expiration, abs=2.0)
        assert (await stage.log(waiting))["alloc"].timestamp >= log["free"].timestamp


async def test_the_trace_tells_the_configuration_of_queues_and_every_other_one(autojump_clock):
    """At the start, and after each that is loaded."""
    config = parse_config("[queues.batch.policy.limits]\nduration = '1h'")
    with recorded() as records:
        async with simulated_instance(ONE_CORE, config) as instance, instance.connect() as handle:
            await handle.call(topics.CONFIG_LOAD, {"config": {"queues": {"debug": {}}}})
            told = [record for record in records if record.kind == Kind.CONFIG]
    assert [list(record.data["queues"]) for record in told] == [["batch"], ["debug"]]
    assert told[0].n == 1
    assert told[0].data["queues"]["batch"]["policy"]["limits"]["duration"] == "1h"
