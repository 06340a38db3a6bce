"""The configurations of docs/howto/queues: each of RFC 33's use cases, as a site would have it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from flux_trio.broker import Handle
from flux_trio.config import ExecConfig, parse_config
from flux_trio.cores.job_manager.calls import User
from flux_trio.instance import Instance, Surroundings, open_instance
from flux_trio.jobtap import search_path
from flux_trio.messages import Request, Response, topics
from flux_trio.protocols import JobState
from flux_trio.services.inventory import find_inventory
from tests.support.other_services import execution_service, start_answers
from tests.support.playing import Jobs, context, guest_of

EXAMPLES = Path(__file__).parents[2] / "docs" / "howto" / "queues"
OWNER = 1000
HOUR = 3600.0

ALICE, BOB, CAROL = 1, 2, 3
USERS = {
    OWNER: User("flux", frozenset({"staff"})),
    ALICE: User("alice", frozenset({"staff"})),
    BOB: User("bob", frozenset({"physics", "staff"})),
    CAROL: User("carol", frozenset({"guests"})),
}


@dataclass
class Site:
    """An instance with one of the configurations."""

    instance: Instance
    client: Handle
    jobs: Jobs

    async def queue(self, verb: str, name: str) -> dict[str, Any]:
        """`flux-trio queue VERB NAME`."""
        if verb in ("drain", "idle"):
            return await self.client.call(f"job-manager.{verb}", {"name": name})
        payload = {"name": name, "start": verb == "start"}
        return await self.client.call(topics.JOB_QUEUE_START, payload)

    async def state(self, jobid: int) -> JobState:
        """Where the job is, once nothing more happens at once."""
        await trio.sleep(1)
        told = await self.client.call(topics.LIST_ID, {"id": jobid})
        return JobState(told["job"]["state"])

    async def nodes(self, jobid: int) -> str:
        """Where the job runs, or ran."""
        told = await self.client.call(topics.LIST_ID, {"id": jobid})
        return str(told["job"]["nodelist"])


@asynccontextmanager
async def site(example: str) -> AsyncIterator[Site]:
    config = parse_config((EXAMPLES / f"{example}.toml").read_text(), example)
    inventory, exclude = find_inventory(config.resource)

    async def users(userid: int) -> User:
        return USERS.get(userid, User())

    given = Surroundings(
        inventory=inventory,
        userid=OWNER,
        epoch=1e9,
        exclude=exclude,
        users=users,
        plugin_path=(EXAMPLES, *search_path({})),
    )
    pretending = msgspec.structs.replace(config, exec=ExecConfig(simulate=True))
    async with open_instance(pretending, given) as instance, instance.connect() as client:
        yield Site(instance, client, Jobs(client))


def test_every_use_case_has_an_example() -> None:
    """33.criteria.1"""
    assert len(list(EXAMPLES.glob("*.toml"))) == 6


@pytest.mark.classic("no event tells of a default")
async def test_debug_and_batch(autojump_clock: trio.testing.MockClock) -> None:
    """33.background.1: neither a full nor a stopped queue holds up the other."""
    async with site("debug-and-batch") as s:
        full = await s.jobs.submit(seconds=HOUR, nnodes=6, ntasks=6, cores_per_task=4)
        waiting = await s.jobs.submit(seconds=HOUR, nnodes=6, ntasks=6)
        debug = await s.jobs.submit(seconds=60, queue="debug")
        await s.jobs.events(full, "start")
        assert context(await s.jobs.events(debug), "jobspec-update") == {
            "attributes.system.duration": 600.0,
            "attributes.system.constraints": {"properties": ["debug"]},
        }
        assert await s.state(waiting) == JobState.SCHED
        assert await s.nodes(debug) in ("node6", "node7")
        anywhere = await s.jobs.submit(seconds=HOUR, queue="any", nnodes=2)
        await s.jobs.events(anywhere, "start")
        assert await s.nodes(anywhere) == "node[6-7]"
        await s.queue("stop", "batch")
        after = await s.jobs.submit(seconds=60, queue="debug")
        assert await s.state(after) == JobState.RUN


async def test_dedicated_time(autojump_clock: trio.testing.MockClock) -> None:
    """33.background.2: submitted in advance, on more than what `batch` has."""
    async with site("dedicated-time") as s:
        whole = await s.jobs.submit(seconds=HOUR, queue="dat", nnodes=8, exclusive=True)
        batch = [await s.jobs.submit(seconds=HOUR, nnodes=6, exclusive=True) for _ in range(2)]
        assert await s.state(whole) == JobState.SCHED
        await s.queue("stop", "batch")
        assert await s.queue("idle", "batch") == {"pending": 1}
        await s.queue("start", "dat")
        assert await s.state(whole) == JobState.RUN
        assert await s.nodes(whole) == "node[0-7]"
        await s.queue("drain", "dat")
        await s.queue("start", "batch")
        await s.jobs.events(batch[1])


async def test_limits(autojump_clock: trio.testing.MockClock) -> None:
    """33.background.3, 33.impl.6, 33.validation.2: those of one queue are not the other's."""
    async with site("limits") as s:
        text = "requested duration (2h) exceeds policy limit of 1h for queue short"
        assert await s.jobs.refused(duration=2 * HOUR) == text
        text = "requested nnodes (3) exceeds policy limit of 2 for queue long"
        assert await s.jobs.refused(queue="long", nnodes=3) == text
        text = "requested ncores (9) exceeds policy limit of 8 for queue long"
        assert await s.jobs.refused(queue="long", ntasks=9) == text
        for options in ({"nnodes": 8}, {"queue": "long", "duration": 24 * HOUR, "nnodes": 2}):
            await s.jobs.events(await s.jobs.submit(**options))


@pytest.mark.parametrize(("queue", "passes"), [("strict", False), ("filler", True)])
async def test_scheduling(queue: str, passes: bool, autojump_clock: trio.testing.MockClock) -> None:
    """33.background.4: in `filler` a small job passes one that waits for the whole machine."""
    async with site("scheduling") as s:
        first = await s.jobs.submit(seconds=HOUR, queue=queue, nnodes=7, exclusive=True)
        await s.jobs.events(first, "start")
        large = await s.jobs.submit(seconds=HOUR, queue=queue, nnodes=8, exclusive=True)
        small = await s.jobs.submit(seconds=60, duration=60, queue=queue)
        assert await s.state(large) == JobState.SCHED
        assert (await s.state(small) == JobState.SCHED) is not passes


async def test_priorities_of_a_queue_are_a_plugins(autojump_clock: trio.testing.MockClock) -> None:
    """33.background.4, 33.prioritypolicy.1: the first job of `strict` ranks highest."""
    async with site("scheduling") as s:
        now = await s.jobs.submit(seconds=HOUR, nnodes=8, exclusive=True)
        filler = await s.jobs.submit(seconds=HOUR, queue="filler", nnodes=8, exclusive=True)
        strict = await s.jobs.submit(seconds=HOUR, nnodes=8, exclusive=True)
        await s.jobs.events(now)
        assert await s.state(strict) == JobState.RUN
        assert await s.state(filler) == JobState.SCHED
        assert context(await s.jobs.so_far(strict), "priority") == {"priority": 116}


async def test_access(autojump_clock: trio.testing.MockClock) -> None:
    """33.background.5: a user, and the members of a group."""
    async with site("access") as s:
        for userid in (ALICE, BOB):
            async with guest_of(s.instance, userid) as user:
                jobid = await user.submit(queue="physics")
                await user.events(jobid)
                assert await s.nodes(jobid) in ("node6", "node7")
        async with guest_of(s.instance, CAROL) as carol:
            text = "user carol has no access to queue physics"
            assert await carol.refused(queue="physics") == text
            held = await carol.submit(urgency=0)
            assert await carol.update(held, queue="physics") == text
        assert await s.jobs.refused(queue="physics") == "user flux has no access to queue physics"


async def test_exceptions(autojump_clock: trio.testing.MockClock) -> None:
    """33.background.6: a queue overrides what holds for all."""
    async with (
        site("exceptions") as s,
        guest_of(s.instance, BOB) as bob,
        guest_of(s.instance, CAROL) as carol,
    ):
        text = "requested duration (2h) exceeds policy limit of 1h for queue batch"
        assert await bob.refused(duration=2 * HOUR) == text
        text = "user bob has no access to queue unlimited"
        assert await bob.refused(queue="unlimited") == text
        assert await carol.refused() == "user carol has no access to queue batch"
        large = await carol.submit(queue="unlimited", duration=48 * HOUR, nnodes=8)
        await carol.events(large)


async def test_one_job_is_an_exception_without_a_queue_for_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """33.criteria.6: its duration, its queue and its urgency are the instance owner's to change."""
    async with site("exceptions") as s, guest_of(s.instance, BOB) as bob:
        full = await s.jobs.submit(seconds=60, nnodes=4, ntasks=16)
        held = await bob.submit(urgency=0)
        assert await bob.update(held, duration=48 * HOUR) != ""
        assert await s.jobs.update(held, duration=48 * HOUR) == ""
        assert await s.jobs.update(held, queue="unlimited") == ""
        await s.client.call(topics.JOB_URGENCY, {"id": held, "urgency": 31})
        events = await s.jobs.events(held)
        priorities = [each.context for each in events if each.name == "priority"]
        assert {"priority": 4294967295} in priorities
        await s.jobs.events(full)


async def test_another_execution_service_runs_the_jobs_of_every_queue(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """32.hello.1: as a simulator would take over, and each queue has its own nodes."""
    ranks = {"batch": "0", "debug": "6"}
    asked: list[str] = []

    def answers(request: Request) -> list[Response]:
        assert isinstance(request.payload, dict)
        queue = request.payload["jobspec"]["attributes"]["system"]["queue"]
        asked.append(queue)
        release = {"ranks": ranks[queue], "final": True}
        said = start_answers(("start", {}), ("finish", {"status": 0}), ("release", release))
        return said(request)

    async with (
        site("debug-and-batch") as s,
        execution_service(s.instance, "sim-exec", answers) as hello,
    ):
        assert hello == "ok"
        ids = {queue: await s.jobs.submit(seconds=HOUR, queue=queue) for queue in ranks}
        for jobid in ids.values():
            events = await s.jobs.events(jobid)
            assert events[-1].timestamp - events[0].timestamp < 1.0, "it only pretended"
        assert asked == ["batch", "debug"]
        assert [await s.nodes(jobid) for jobid in ids.values()] == ["node0", "node6"]
