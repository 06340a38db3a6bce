"""What builtin plugins hold goes on when the instance has been down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from flux_trio.config import Config, ExecConfig, JobManagerConfig, PerilogConfig
from flux_trio.instance import Surroundings, open_instance
from flux_trio.jobtap import Plugin
from flux_trio.sim import make_machine
from flux_trio.store.stores import MemoryStore
from tests.support.perilog import Acting
from tests.support.playing import Jobs, context, names, when

EPOCH = 1_000_000.0
NAMED: dict[str, Any] = {"attributes": {"system.job.name": "n"}}
BOTH = JobManagerConfig([], PerilogConfig(["prolog"]), PerilogConfig(["epilog"]))


class Lives:
    """An instance that is opened several times, and finds what it left."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    @asynccontextmanager
    async def live(
        self, plugins: Iterable[Plugin] = (), tables: JobManagerConfig | None = None
    ) -> AsyncIterator[Jobs]:
        config = Config(exec=ExecConfig(simulate=True), job_manager=tables or JobManagerConfig())
        given = Surroundings(
            inventory=make_machine(nnodes=4, cores_per_node=4),
            userid=1000,
            epoch=EPOCH + trio.current_time(),
            store=lambda: self._store,
            plugins=plugins,
        )
        async with open_instance(config, given) as instance, instance.connect() as client:
            yield Jobs(client)
            assert [entry.text for entry in instance.log if entry.level <= 3] == []


@pytest.fixture
def lives() -> Lives:
    return Lives()


def added(events: list[Any]) -> list[str]:
    """Each description that was added, as often as it was."""
    return [each.context["description"] for each in events if each.name == "dependency-add"]


async def test_dependencies_are_taken_up_again_and_added_once(lives: Lives, autojump_clock):
    """26.events.4"""
    async with lives.live() as jobs:
        first = await jobs.submit(seconds=100)
        second = await jobs.submit(f"afterok:{first}", f"begin-time:{EPOCH + 500}")
        await jobs.events(first, "start")
    async with lives.live() as jobs:
        events = await jobs.events(second)
        assert added(events) == [f"after-success={first}", f"begin-time={EPOCH + 500:.3f}"]
        assert names(events).count("dependency-remove") == 2
        assert when(events, "depend") == pytest.approx(EPOCH + 500, abs=0.1)


async def test_satisfied_dependency_stays_satisfied(lives: Lives, autojump_clock):
    async with lives.live() as jobs:
        first = await jobs.submit()
        second = await jobs.submit(f"afterany:{first}", f"after:{first}", urgency=0)
        third = await jobs.submit(f"afterany:{first}", f"begin-time:{EPOCH + 500}")
        await jobs.events(third, "dependency-remove")
        await jobs.events(second, "priority")
    async with lives.live() as jobs:
        events = await jobs.events(third)
        assert len(added(events)) == names(events).count("dependency-remove") == 2
        assert "exception" not in names(events)


@pytest.mark.parametrize("status", [0, 256])
async def test_job_waits_for_one_that_an_earlier_life_saw_to_its_end(
    status: int, lives: Lives, autojump_clock
):
    """26.schemes.5, 26.schemes.6"""
    async with lives.live() as jobs:
        first = await jobs.submit(status=status)
        await jobs.events(first)
    async with lives.live() as jobs:
        right, wrong = ("afterok", "afternotok") if status == 0 else ("afternotok", "afterok")
        assert "finish" in names(await jobs.events(await jobs.submit(f"{right}:{first}")))
        assert f"dependency: {wrong}: job {first} " in await jobs.refused(f"{wrong}:{first}")


async def test_begin_time_that_passed_meanwhile_frees_the_job_at_once(lives: Lives, autojump_clock):
    """26.schemes.7"""
    async with lives.live() as jobs:
        job = await jobs.submit(f"begin-time:{EPOCH + 100}")
    await trio.sleep(1000)
    async with lives.live() as jobs:
        assert when(await jobs.events(job), "depend") == pytest.approx(EPOCH + 1000, abs=0.1)


async def test_singletons_still_go_one_after_the_other(lives: Lives, autojump_clock):
    async with lives.live() as jobs:
        first = await jobs.submit(seconds=100, **NAMED)
        second, third = [await jobs.submit("singleton", **NAMED) for _ in range(2)]
        await jobs.events(first, "start")
    async with lives.live() as jobs:
        ended = [await jobs.events(jobid) for jobid in (first, second, third)]
        assert added(ended[2]) == ["singleton"]
        assert when(ended[1], "depend") >= when(ended[0], "clean")
        assert when(ended[2], "depend") >= when(ended[1], "clean")


async def test_epilog_that_was_going_on_is_run_again(lives: Lives, autojump_clock):
    async with lives.live([Acting(epilog={"seconds": 100})], BOTH) as jobs:
        job = await jobs.submit()
        await jobs.events(job, "epilog-start")
        await trio.sleep(10)
    plugin = Acting(epilog={"seconds": 100})
    async with lives.live([plugin], BOTH) as jobs:
        events = await jobs.events(job)
        assert names(events).count("epilog-start") == names(events).count("epilog-finish") == 1
        assert [what for what, _, _ in plugin.played] == ["epilog"]


@pytest.mark.parametrize("what", ["prolog", "epilog"])
async def test_what_is_configured_no_longer_holds_no_job(what: str, lives: Lives, autojump_clock):
    plugin = Acting({"seconds": 100}, {"seconds": 100})
    async with lives.live([plugin], BOTH) as jobs:
        job = await jobs.submit()
        await jobs.events(job, f"{what}-start")
        await trio.sleep(10)
    async with lives.live([Acting()], JobManagerConfig()) as jobs:
        events = await jobs.events(job)
        assert names(events).count(f"{what}-finish") == 1
        assert context(events, f"{what}-finish")["status"] == 0
        assert "exception" not in names(events)
        assert "finish" in names(events)


async def test_prolog_of_a_canceled_job_is_over_and_the_epilog_runs(lives: Lives, autojump_clock):
    async with lives.live([Acting({"seconds": 100, "deaf": True})], BOTH) as jobs:
        job = await jobs.submit()
        await jobs.events(job, "prolog-start")
        await jobs.cancel(job)
        await trio.sleep(1)
    plugin = Acting()
    async with lives.live([plugin], BOTH) as jobs:
        events = await jobs.events(job)
        assert context(events, "prolog-finish")["status"] == 9
        assert names(events)[-5:] == [  # no release: it was never started (21.events.22)
            "epilog-start",
            "prolog-finish",
            "epilog-finish",
            "free",
            "clean",
        ]
        assert [what for what, _, _ in plugin.played] == ["epilog"]


async def test_job_that_runs_has_its_prolog_behind_it(lives: Lives, autojump_clock):
    async with lives.live([Acting()], BOTH) as jobs:
        job = await jobs.submit(seconds=100)
        await jobs.events(job, "start")
    plugin = Acting()
    async with lives.live([plugin], BOTH) as jobs:
        events = await jobs.events(job)
        assert names(events).count("prolog-start") == 1
        assert [what for what, _, _ in plugin.played] == ["epilog"]
