"""The kvs service on a broker, over memory and over a file."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trio
import trio.testing

from flux_trio.broker import Handle
from flux_trio.messages import Errno, FluxError
from flux_trio.services import kvs
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.stores import MemoryStore, Store, StoreError
from tests.support.serving import World

pytestmark = pytest.mark.classic("the words of the kvs are those of classic")

Main = Callable[..., Awaitable[None]]
TEST_S_MAX = 300.0  # only what hangs takes so long


def over(store_factory: Callable[[], Store]) -> Main:
    async def main(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        await kvs.run(handle, store_factory, task_status=task_status)

    return main


@pytest.fixture(params=["memory", "sqlite"])
def main(request: pytest.FixtureRequest, tmp_path: Path) -> Main:
    memory = MemoryStore()
    file = partial(SqliteStore, tmp_path / "kvs.sqlite")
    return over((lambda: memory) if request.param == "memory" else file)


async def test_what_is_committed_can_be_read_also_by_the_next_service(main: Main) -> None:
    world = World()
    client = world.client()
    async with world.serving("kvs", main):
        await client.ask("kvs.commit", {"ops": [["put", "a.b", "1"], ["append", "a.b", "2"]]})
        assert await client.ask("kvs.lookup", {"key": "a.b"}) == {"value": "12"}
    async with world.serving("kvs", main):
        assert await client.ask("kvs.dir", {"prefix": "a"}) == {"keys": ["a.b"]}
        assert await client.ask("kvs.count", {"prefix": "a"}) == {"count": 1}
        page = {"prefix": "a", "limit": 1}
        assert await client.ask("kvs.page", page) == {"keys": ["a.b"], "values": ["12"]}
        assert await client.ask("kvs.page", page | {"values": False}) == {"keys": ["a.b"]}
        assert await client.ask("kvs.lookup", {"key": "a.b"}) == {"value": "12"}


async def test_watch_follows_what_another_commits(main: Main) -> None:
    world = World()
    watcher, writer = world.client("watcher"), world.client("writer")
    async with world.serving("kvs", main):
        watch = watcher.send("kvs.watch", {"key": "log"}, streaming=True)
        for op in (["append", "log", "1"], ["append", "log", "2"], ["unlink", "log"]):
            await writer.ask("kvs.commit", {"ops": [op]})
        assert (await watcher.answer(watch)).payload == {"value": "1"}
        assert (await watcher.answer(watch)).payload == {"append": "2"}
        assert (await watcher.answer(watch)).errnum == Errno.ENOENT


async def test_requests_sent_at_once_are_all_answered(main: Main) -> None:
    world = World()
    client = world.client()
    async with world.serving("kvs", main):
        tags = [client.send("kvs.commit", {"ops": [["append", "log", f"{n},"]]}) for n in range(99)]
        assert (await client.ask("kvs.lookup", {"key": "log"}))["value"].endswith(",97,98,")
        assert [(await client.answer(tag)).errnum for tag in tags] == [0] * 99


async def test_commit_is_stored_while_plugins_hold_every_thread_that_they_may_have(
    main: Main,
) -> None:
    shared = trio.to_thread.current_default_thread_limiter()
    for _ in range(int(shared.total_tokens)):
        shared.acquire_on_behalf_of_nowait(object())
    world = World()
    client = world.client()
    with trio.fail_after(TEST_S_MAX):
        async with world.serving("kvs", main):
            await client.ask("kvs.commit", {"ops": [["put", "a", "1"]]})
            assert await client.ask("kvs.lookup", {"key": "a"}) == {"value": "1"}


class StuckStore(MemoryStore):
    """Waits, as on a disk that does not answer, until told to go on."""

    waits_for_disk: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.closed = False

    def commit(self, ops: Any) -> None:
        assert self.go_on.wait(timeout=300)
        super().commit(ops)

    def close(self) -> None:
        self.closed = True


async def test_instance_goes_on_while_the_disk_does_not_answer() -> None:
    world, store = World(), StuckStore()
    client = world.client()
    async with world.serving("kvs", over(lambda: store)):
        commit = client.send("kvs.commit", {"ops": [["put", "a", "1"]]})
        with pytest.raises(FluxError, match="no method x in service kvs"):
            await client.ask("kvs.x")
        store.go_on.set()
        assert (await client.answer(commit)).errnum == 0
    assert store.closed


async def test_transaction_under_way_is_finished_and_the_store_closed_at_the_end() -> None:
    world, store = World(), StuckStore()
    client = world.client()
    async with world.serving("kvs", over(lambda: store)):
        client.send("kvs.commit", {"ops": [["put", "a", "1"]]})
        await trio.testing.wait_all_tasks_blocked()
        store.go_on.set()
    assert store.closed
    assert store.lookup(["a"]) == ["1"]


class BadStore(MemoryStore):
    def commit(self, ops: Any) -> None:
        raise StoreError(Errno.EIO, "disk: bad")

    def close(self) -> None:
        raise StoreError(Errno.EIO, "disk: gone")


@pytest.mark.parametrize("waits", [False, True])
async def test_failed_store_is_an_error_response_and_a_line_in_the_log(waits: bool) -> None:
    store = type("Bad", (BadStore,), {"waits_for_disk": waits})()
    world = World()
    client = world.client()
    async with world.serving("kvs", over(lambda: store)):
        for _ in range(2):
            with pytest.raises(FluxError, match="commits are refused: disk: bad"):
                await client.ask("kvs.commit", {"ops": [["put", "a", "1"]]})
        with pytest.raises(FluxError, match="a: no such key"):
            await client.ask("kvs.lookup", {"key": "a"})
    first, last = world.log
    assert (first.level, last.text) == (2, "kvs: disk: gone")


async def test_store_that_does_not_open_is_an_error_of_whoever_loads_it(tmp_path: Path) -> None:
    path = tmp_path / "kvs.sqlite"
    path.write_text("not a database, but long enough to look into" * 100)
    handle = World().handle("kvs")
    async with trio.open_nursery() as nursery:
        with pytest.raises(StoreError, match=r"kvs\.sqlite: cannot be opened"):
            await nursery.start(over(partial(SqliteStore, path)), handle)


async def test_second_kvs_is_refused_and_closes_what_it_opened() -> None:
    world, store = World(), StuckStore()
    world.handle("first").register("kvs")
    async with trio.open_nursery() as nursery:
        with pytest.raises(FluxError, match="already held by first"):
            await nursery.start(over(lambda: store), world.handle("second"))
    assert store.closed


class SlowBackupStore(MemoryStore):
    """Makes a backup of slices without end, until told to go on."""

    waits_for_disk: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def backup(self, path: Path, between: Callable[[], None]) -> None:
        while not self.go_on.is_set():
            between()


async def test_commits_are_served_while_a_backup_is_made() -> None:
    world, store = World(), SlowBackupStore()
    client, writer = world.client("client"), world.client("writer")
    async with world.serving("kvs", over(lambda: store)):
        backup = client.send("kvs.backup", {"path": "/x"})
        for n in range(3):
            await writer.ask("kvs.commit", {"ops": [["put", "a", str(n)]]})
            assert await writer.ask("kvs.lookup", {"key": "a"}) == {"value": str(n)}
        with pytest.raises(FluxError, match="another backup is being made"):
            await writer.ask("kvs.backup", {"path": "/y"})
        store.go_on.set()
        assert (await client.answer(backup)).errnum == 0


async def test_backup_stops_when_its_client_goes() -> None:
    world, store = World(), SlowBackupStore()
    client, other = world.client("client"), world.client("other")
    async with world.serving("kvs", over(lambda: store)):
        client.send("kvs.backup", {"path": "/x"})
        await other.ask("kvs.lookup-all", {"keys": []})
        client.handle.close()
        with trio.fail_after(300):
            again = None
            while again is None:  # until the first one, which never ends by itself, has stopped
                again = other.send("kvs.backup", {"path": "/y"})
                await other.ask("kvs.lookup-all", {"keys": []})
                again = None if other.has_answer(again) else again
        store.go_on.set()
        assert (await other.answer(again)).errnum == 0


async def test_service_ends_while_a_backup_is_made() -> None:
    world, store = World(), SlowBackupStore()
    client = world.client()
    async with world.serving("kvs", over(lambda: store)):
        client.send("kvs.backup", {"path": "/x"})
        await client.ask("kvs.commit", {"ops": [["put", "a", "1"]]})
    assert store.lookup(["a"]) == ["1"]


async def test_backup_of_a_file(tmp_path: Path) -> None:
    world = World()
    client = world.client()
    path = tmp_path / "backup.sqlite"
    async with world.serving("kvs", over(partial(SqliteStore, tmp_path / "kvs.sqlite"))):
        await client.ask("kvs.commit", {"ops": [["put", "a", "1"]]})
        await client.ask("kvs.backup", {"path": str(path)})
        with pytest.raises(FluxError, match=f"{path}: cannot be written: File exists"):
            await client.ask("kvs.backup", {"path": str(path)})
    copy = SqliteStore(path)
    try:
        assert copy.lookup(["a"]) == ["1"]
    finally:
        copy.close()
