"""Modules: loaded, crashed, removed and reloaded."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from flux_trio.broker import Handle, ModuleCrashed, ModuleNotStarted
from flux_trio.messages import Errno, FluxError, Level, Response
from tests.support.modules import ModuleWorld, echo, listener


@pytest.fixture
def world(nursery: trio.Nursery) -> ModuleWorld:
    return ModuleWorld(nursery)


async def stuck(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
    handle.register("stuck")
    await trio.sleep_forever()


# --- load


async def test_load_waits_until_the_module_serves(
    world: ModuleWorld, autojump_clock: MockClock
) -> None:
    async def slow(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(5)
        handle.register("slow")
        task_status.started()
        await trio.sleep_forever()

    await world.load("slow", slow)
    assert world.now() == 1005
    assert "slow" in world.router.services
    assert world.told() == [{"module": "slow", "what": "started"}]


async def raises(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
    handle.register("bad")
    raise ZeroDivisionError("no disk")


async def raises_in_a_nursery(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
    async with trio.open_nursery():
        handle.register("bad")
        raise ZeroDivisionError("no disk")


async def returns(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
    handle.register("bad")


@pytest.mark.parametrize(
    ("main", "why"),
    [
        (raises, "ZeroDivisionError: no disk"),
        (raises_in_a_nursery, "ZeroDivisionError: no disk"),
        (returns, "returned without being asked to"),
    ],
)
@pytest.mark.parametrize("essential", [False, True])
async def test_error_before_the_start_is_raised_to_the_loader_and_nothing_stays(
    world: ModuleWorld, main: Any, why: str, essential: bool
) -> None:
    with pytest.raises(ModuleNotStarted) as error:
        await world.load("bad", main, essential=essential)
    assert str(error.value) == f"module bad: {why}"
    assert (error.value.__cause__ is None) == (main is returns)
    assert "bad" not in world.supervisor
    assert (world.router.peers, world.router.services) == ({}, {})
    assert world.told() == []
    assert list(world.log) == []


async def test_cancelled_load_leaves_nothing(world: ModuleWorld, autojump_clock: MockClock) -> None:
    with trio.move_on_after(1) as scope:
        await world.load("stuck", stuck)
    assert scope.cancelled_caught
    assert "stuck" not in world.supervisor
    assert (world.router.peers, world.router.services) == ({}, {})


async def test_list_is_in_the_order_loaded(world: ModuleWorld, autojump_clock: MockClock) -> None:
    await world.load("stuck-elsewhere", listener("sink", []))
    await trio.sleep(3)
    await world.load("echo", echo)
    client = world.client()
    client.send("echo.back")
    first, second = world.supervisor.list()
    assert (first.name, first.services, first.t_loaded) == ("stuck-elsewhere", ("sink",), 1000)
    assert (second.name, second.services, second.t_loaded) == ("echo", ("echo",), 1003)
    assert (first.waiting, second.waiting) == (0, 1)


# --- crash and early return


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("crash", {"what": "crashed", "reason": "ZeroDivisionError: as asked"}),
        ("return", {"what": "returned", "reason": "returned without being asked to"}),
    ],
)
async def test_crash_or_early_return_is_recorded_and_the_broker_lives(
    world: ModuleWorld, how: str, told: dict[str, str]
) -> None:
    "6.errors.1: callers of the module that went are answered ENOSYS; its name is free."
    await world.load("echo", echo)
    await world.load("other", listener("other", []))
    client = world.client()
    waiting = client.send("echo.wait")
    client.send(f"echo.{how}")
    assert (await client.answer(waiting)).errnum == Errno.ENOSYS
    assert world.told()[-1] == {"module": "echo", **told}
    (line,) = world.log
    assert (line.level, line.party, line.text) == (
        Level.CRIT,
        "echo",
        f"module echo: {told['reason']}",
    )
    assert "echo" not in world.router.services
    assert "echo" not in world.supervisor
    assert [module.name for module in world.supervisor.list()] == ["other"]
    with pytest.raises(FluxError) as refused:
        await client.ask("echo.back")
    assert (refused.value.errnum, refused.value.text) == (
        Errno.ENOSYS,
        f"echo ended: {told['reason']}",
    )
    await world.supervisor.load("echo")
    assert await client.ask("echo.back", {"a": 1}) == {"a": 1}
    await world.supervisor.remove("echo")  # as asked: nothing is to be said of the one before
    with pytest.raises(FluxError, match="No service matching"):
        await client.ask("echo.back")


async def test_crash_of_an_essential_module_ends_the_instance() -> None:
    with pytest.RaisesGroup(
        pytest.RaisesExc(ModuleCrashed, match="module echo: ZeroDivisionError: as asked")
    ) as group:
        async with trio.open_nursery() as nursery:
            world = ModuleWorld(nursery)
            await world.load("echo", echo, essential=True)
            world.client().send("echo.crash")
            await trio.sleep_forever()
    assert isinstance(group.value.exceptions[0].__cause__, ZeroDivisionError)
    assert world.told()[-1] == {
        "module": "echo",
        "what": "crashed",
        "reason": "ZeroDivisionError: as asked",
    }


async def test_error_of_several_tasks_is_told_in_one_line(world: ModuleWorld) -> None:
    async def fail(text: str) -> None:
        raise ValueError(text)

    async def main(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, "same")
            nursery.start_soon(fail, "same")

    await world.load("many", main)
    await trio.testing.wait_all_tasks_blocked()
    (line,) = world.log
    assert line.text == "module many: ValueError: same; ValueError: same"


# --- remove and reload


async def test_remove_cancels_the_module_and_waits_until_nothing_is_left(
    world: ModuleWorld, autojump_clock: MockClock
) -> None:
    async def slow_to_go(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        handle.register("slow")
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)

    await world.load("slow", slow_to_go)
    await world.supervisor.remove("slow")
    assert world.now() == 1003
    assert (world.router.peers, world.router.services) == ({}, {})
    assert world.told() == [
        {"module": "slow", "what": "started"},
        {"module": "slow", "what": "removed"},
    ]
    assert list(world.log) == []


async def test_two_may_wait_for_the_same_module_to_go(world: ModuleWorld) -> None:
    await world.load("echo", echo)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.supervisor.remove, "echo")
        nursery.start_soon(world.supervisor.remove, "echo")
    assert "echo" not in world.supervisor


async def test_error_on_the_way_out_is_logged_and_does_no_further_harm(world: ModuleWorld) -> None:
    async def clumsy(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            raise ZeroDivisionError("fell")

    await world.load("clumsy", clumsy, essential=True)
    await world.supervisor.remove("clumsy")
    await trio.testing.wait_all_tasks_blocked()
    (line,) = world.log
    assert (line.level, line.text) == (
        Level.ERR,
        "module clumsy: while removed: ZeroDivisionError: fell",
    )


async def test_module_removed_while_it_starts_is_an_error_of_its_loader(world: ModuleWorld) -> None:
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def load() -> None:
            with pytest.raises(ModuleNotStarted, match="module stuck: removed before"):
                await world.load("stuck", stuck)

        await trio.testing.wait_all_tasks_blocked()
        await world.supervisor.remove("stuck")
    assert world.router.peers == {}


async def test_reload_is_remove_then_load(world: ModuleWorld) -> None:
    "What the old one had not taken up is answered ENOSYS and never reaches the new one."

    async def deaf(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        handle.register("echo")
        task_status.started()
        await trio.sleep_forever()

    await world.load("echo", deaf)
    client = world.client()
    tag = client.send("echo.back", {"n": 1})
    world.knows("echo", echo)
    await world.supervisor.reload("echo")
    assert (await client.answer(tag)).errnum == Errno.ENOSYS
    assert await client.ask("echo.back", {"n": 2}) == {"n": 2}
    assert [told and told["what"] for told in world.told()] == ["started", "removed", "started"]


async def test_names_of_what_was_removed_are_free_and_its_late_words_are_dropped(
    world: ModuleWorld,
) -> None:
    old: list[Handle] = []

    async def keeps(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        old.append(handle)
        await echo(handle, task_status=task_status)

    await world.load("old", keeps)
    client = world.client()
    client.send("echo.wait")
    await world.supervisor.remove("old")
    await world.load("new", echo)
    await client.handle.receive()
    old[0].send(Response("echo.wait", {"stale": True}, matchtag=1, routes=("client",)))
    assert client.handle.waiting() == 0
    assert [drop.data for drop in world.drops()] == [{"reason": "old does not hold that service"}]


# --- cancellation is never swallowed


async def test_cancelled_instance_is_cancelled_not_crashed() -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            world = ModuleWorld(nursery)
            await world.load("echo", echo, essential=True)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert (world.router.peers, list(world.log)) == ({}, [])
    assert world.told() == [{"module": "echo", "what": "started"}]


# --- kill


async def test_killed_module_has_crashed(world: ModuleWorld) -> None:
    await world.load("stuck", stuck_after_start)
    await world.supervisor.kill("stuck")
    assert "stuck" not in world.supervisor
    assert (world.router.peers, world.router.services) == ({}, {})
    reason = "ModuleKilled: killed on request"
    assert world.told()[-1] == {"module": "stuck", "what": "crashed", "reason": reason}
    assert [line.text for line in world.log] == [f"module stuck: {reason}"]
    with pytest.raises(FluxError) as gone:
        await world.supervisor.kill("stuck")
    assert gone.value.errnum == Errno.ENOENT


async def stuck_after_start(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
    handle.register("stuck")
    task_status.started()
    await trio.sleep_forever()


async def test_list_tells_how_far_a_module_is(
    world: ModuleWorld, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async def slow(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(5)
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)

    def status() -> list[str]:
        return [str(each.status) for each in world.supervisor.list()]

    nursery.start_soon(world.load, "slow", slow)
    await trio.sleep(1)
    assert status() == ["starting"]
    await trio.sleep(5)
    assert status() == ["running"]
    nursery.start_soon(world.supervisor.remove, "slow")
    await trio.sleep(1)
    assert status() == ["stopping"]
    await trio.sleep(5)
    assert status() == []
