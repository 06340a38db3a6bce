"""Plugins whose tasks cannot be cancelled: nobody waits for them, and they are named."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from flux_trio import jobtap
from flux_trio.jobtap import FluxError, NotAllowed, PluginError, ServiceRequest
from flux_trio.jobtap.tasks import END_S, going_on
from flux_trio.protocols import Annotate
from tests.support.plugin_host import JOB, PRIORITY, Rig, handling, rig

NAME = f"plugin a: {PRIORITY} for job ƒ8"
GOES_ON = f"goes on {END_S:g} s after it was cancelled, and is abandoned"
ABANDONED = f"{NAME} {GOES_ON}"


class Hangs(jobtap.Plugin):
    """Each subclass waits in a way that a cancel does not end, until `let_go`."""

    name = "a"
    deadline = 60.0

    def __init__(self) -> None:
        self.free = trio.Event()
        self.in_thread = threading.Event()
        self.error: BaseException | None = None

    @jobtap.on(PRIORITY)
    async def rank(self, job: jobtap.Job) -> int:
        job.annotate({"early": 1})
        try:
            await self.hang()
        finally:
            try:
                job.annotate({"late": 1})
            except NotAllowed as error:
                self.error = error
        return 5

    @jobtap.on("conf.update")
    async def configure(self, _config: jobtap.Config) -> None:
        if self.conf.get("hangs"):
            await self.hang()

    @jobtap.service("look")
    async def look(self, _request: ServiceRequest) -> None:
        await self.hang()

    async def hang(self) -> None:
        raise NotImplementedError

    def let_go(self) -> None:
        self.in_thread.set()
        self.free.set()


class Shielded(Hangs):
    async def hang(self) -> None:
        with trio.CancelScope(shield=True):
            await self.free.wait()


class InThread(Hangs):
    async def hang(self) -> None:
        await trio.to_thread.run_sync(self.in_thread.wait)


class Spins(Hangs):
    """It catches everything, and waits again."""

    async def hang(self) -> None:
        while not self.free.is_set():
            try:  # noqa: SIM105 - as people write it
                await trio.sleep(1)
            except BaseException:  # noqa: BLE001
                pass


class ChildSpins(Spins):
    """The same in a nursery of its own."""

    async def hang(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super().hang)


every_way = pytest.mark.parametrize("make", [Shielded, InThread, Spins, ChildSpins])


async def until(condition: Callable[[], object]) -> None:
    """Let the other tasks run until `condition`; none of them needs time to pass."""
    while not condition():
        await trio.lowlevel.checkpoint()


async def grace_ends(clock: MockClock) -> None:
    """Let the time pass that a cancelled task has, after all others have begun to wait for it."""
    for _ in range(10):
        await trio.lowlevel.checkpoint()
    clock.jump(END_S)


@asynccontextmanager
async def hanging(plugin: Hangs, *others: jobtap.Plugin) -> AsyncIterator[Rig]:
    """A host that has asked about a job; at the end of the block the plugin is let go."""
    async with rig(plugin, *others) as r:
        try:
            r.jobs(JOB)
            assert r.ask() is None
            await trio.testing.wait_all_tasks_blocked()
            yield r
        finally:
            plugin.let_go()
        await until(lambda: not going_on())


@every_way
async def test_answer_at_the_deadline_is_no_answer_and_the_task_is_named(
    make: type[Hangs], mock_clock: MockClock
) -> None:
    async with hanging(make()) as r:
        mock_clock.jump(60)
        await until(lambda: r.answers)
        [answered] = r.answers
        assert (
            answered.answer.error == f"plugin a failed in {PRIORITY} for job ƒ8: no answer in 60 s"
        )
        assert answered.answer.operations == ()
        assert going_on() == [NAME]
        assert ABANDONED not in r.logged
        await grace_ends(mock_clock)
        await until(lambda: ABANDONED in r.logged)


@every_way
async def test_what_a_late_handler_does_is_no_part_of_the_answer(
    make: type[Hangs], mock_clock: MockClock
) -> None:
    plugin = make()
    async with hanging(plugin) as r:
        mock_clock.jump(60)
        await until(lambda: r.answers)
        plugin.let_go()
        await until(lambda: not going_on())
        assert [each.answer.operations for each in r.answers] == [()]
        assert [each for each in r.posted if isinstance(each, Annotate)] == [
            Annotate(JOB.id, {"late": 1}, "a")
        ]


@every_way
async def test_removal_goes_on_without_the_task_and_says_so(
    make: type[Hangs], mock_clock: MockClock
) -> None:
    plugin = make()
    async with hanging(plugin, handling(PRIORITY, lambda _job: 7, "b")) as r:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def remove() -> None:
                assert await r.host.remove("a") == (["a"], [NAME])

            await until(lambda: r.answers)  # the question does not wait for the task
            assert r.answers[0].answer.priority == 7
            await grace_ends(mock_clock)
        assert r.logged == [ABANDONED]
        assert await r.host.remove("all") == (["b"], [])
        plugin.let_go()
        await until(lambda: not going_on())
        assert str(plugin.error) == "plugin a is removed"
        assert len(r.posted) == 1


@every_way
async def test_host_ends_without_the_task_and_tells_the_instance(
    make: type[Hangs], mock_clock: MockClock
) -> None:
    plugin = make()
    try:
        async with trio.open_nursery() as nursery, rig(plugin) as r:
            r.ask()
            await trio.testing.wait_all_tasks_blocked()

            @nursery.start_soon
            async def pass_time() -> None:
                await until(going_on)
                await grace_ends(mock_clock)

        assert r.logged == [ABANDONED]
        assert r.abandoned == [NAME]
    finally:
        plugin.let_go()
        await until(lambda: not going_on())


@every_way
async def test_call_of_a_method_ends_at_the_deadline(
    make: type[Hangs], mock_clock: MockClock
) -> None:
    plugin = make()
    async with hanging(plugin) as r:
        method = r.host.method("job-manager.a.look")
        assert method is not None

        async def serve() -> None:
            with pytest.raises(FluxError, match="no answer in 60 s"):
                await r.host.serve(method, ServiceRequest("look", {}, 7, is_owner=True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(60)


@every_way
async def test_plugin_that_hangs_as_it_is_configured_is_not_loaded(
    make: type[Hangs], mock_clock: MockClock
) -> None:
    plugin = make()

    async def load() -> None:
        with pytest.raises(PluginError, match="no answer in 60 s"):
            await r.host.load(plugin, {"hangs": True})

    try:
        async with rig() as r:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load)
                await trio.testing.wait_all_tasks_blocked()
                mock_clock.jump(60)
                await until(going_on)
                await grace_ends(mock_clock)
            assert r.logged[-1] == f"plugin a: conf.update {GOES_ON}"
            assert r.host.names() == []
    finally:
        plugin.let_go()
        await until(lambda: not going_on())


async def test_question_that_is_canceled_is_over_and_its_task_is_named(
    mock_clock: MockClock,
) -> None:
    async with hanging(Shielded()) as r:
        r.host.cancel(1)
        await until(lambda: r.notes[-1]["hook"] == PRIORITY)
        assert r.notes[-1]["error"] == "canceled"
        await grace_ends(mock_clock)
        await until(lambda: r.logged)
        assert r.logged == [ABANDONED]


async def test_removal_waits_no_second_time_for_what_was_abandoned(mock_clock: MockClock) -> None:
    async with hanging(Shielded()) as r:
        mock_clock.jump(60)
        await until(lambda: r.answers)
        await grace_ends(mock_clock)
        await until(lambda: ABANDONED in r.logged)
        assert await r.host.remove("a") == (["a"], [NAME])
