"""The disk is full: nothing acknowledged is lost, and all goes on by itself when there is room."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from flux_trio.cores.kvs.ops import Op
from flux_trio.instance import durable_store
from flux_trio.messages import Errno, FluxError, Level, topics
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import STATE_FILE
from flux_trio.store.stores import MemoryStore, StoreError
from tests.support.failing import CONFIG, HOUR, Scene, scene, settle

DEADLINE_S = 300.0  # only what hangs takes so long, however busy the machine is
NO_ROOM = "kvs: no room for commits: no space left"
ONCE = ("alloc", "start", "finish", "release", "free", "clean")


class Full(MemoryStore):
    """A disk that is full, once it is."""

    full = False
    tries = 0

    def commit(self, ops: Iterable[Op]) -> None:
        if self.full:
            self.tries += 1
            raise StoreError(Errno.ENOSPC, "no space left")
        super().commit(ops)


async def times(s: Scene, jobid: int) -> list[int]:
    """How often the eventlog has what must be there once."""
    events = await s.events(jobid)
    return [events.count(name) for name in ONCE]


async def test_job_that_ends_on_a_full_disk_is_stored_when_there_is_room(
    autojump_clock: MockClock,
) -> None:
    store = Full()
    async with scene(store=lambda: store) as s:
        jobid = await s.submit(run_s=10)
        before = await s.events(jobid)
        store.full = True
        await trio.sleep(60)
        assert await s.events(jobid) == before, (
            "reads go on, and nothing is told that is not stored"
        )
        assert 45 <= store.tries <= 61, "at most once a second"
        assert s.log() == [
            "kvs.crit: no room for commits: no space left; trying again every second"
        ]
        store.full = False
        await s.wait(jobid)
        assert await times(s, jobid) == [1] * len(ONCE)


async def test_submit_is_refused_at_once_and_queue_status_says_why(
    autojump_clock: MockClock,
) -> None:
    store = Full()
    async with scene(store=lambda: store) as s:
        running = await s.submit(run_s=HOUR)
        store.full = True
        for _ in range(2):
            before = trio.current_time()
            with pytest.raises(FluxError, match="no room: the disk is full") as refused:
                await s.submit()
            assert refused.value.errnum == Errno.ENOSPC
            assert trio.current_time() == before
        assert (await s.status())["silent"] == [NO_ROOM]
        store.full = False
        await trio.sleep(1.5)
        assert "silent" not in await s.status(), "it is found without a commit that waits"
        await s.wait(await s.submit())
        assert (await s.events(running))[-1] == "start"


async def cancel(s: Scene, jobid: int) -> None:
    await s.call(topics.JOB_RAISE, {"id": jobid, "severity": 0, "type": "cancel"})


async def memo(s: Scene, jobid: int) -> None:
    await s.call(topics.JOB_MEMO, {"id": jobid, "memo": {"a": 1}})


async def queue_stop(s: Scene, _: int) -> None:
    await s.call(topics.JOB_QUEUE_START, {"start": False})


async def drain(s: Scene, _: int) -> None:
    await s.call(topics.RESOURCE_DRAIN, {"targets": "1", "reason": "why"})


@pytest.mark.parametrize("change", [cancel, memo, queue_stop, drain])
async def test_change_is_answered_when_it_is_durable(
    autojump_clock: MockClock, change: Callable[[Scene, int], Awaitable[None]]
) -> None:
    store = Full()
    async with scene(store=lambda: store) as s, trio.open_nursery() as nursery:
        jobid = await s.submit(run_s=HOUR)
        store.full = True
        answered = trio.Event()

        async def ask() -> None:
            await change(s, jobid)
            assert not store.full
            answered.set()

        nursery.start_soon(ask)
        await trio.sleep(5)
        assert not answered.is_set()
        store.full = False
        await answered.wait()


@pytest.mark.parametrize("module", ["sched", "job-exec", "job-manager", "job-list"])
async def test_module_that_is_reloaded_on_a_full_disk_goes_on_when_there_is_room(
    autojump_clock: MockClock, module: str
) -> None:
    store = Full()
    async with scene(store=lambda: store) as s:
        jobid = await s.submit(run_s=10)
        store.full = True
        await trio.sleep(20)
        await s.supervisor.reload(module)
        await settle()
        if module != "job-manager":  # which reads its state back behind what it committed
            with pytest.raises(FluxError, match="no room: the disk is full"):
                await s.submit()
            assert NO_ROOM in (await s.status())["silent"]
        else:
            for topic in (topics.JOB_QUEUE_LIST, topics.JOB_QUEUE_STATUS):
                with pytest.raises(FluxError, match="reading its state: kvs: no room") as refused:
                    await s.call(topic, {})
                assert refused.value.errnum == Errno.EAGAIN
        store.full = False
        await s.wait(jobid)
        await s.wait(await s.submit())
        assert await times(s, jobid) == [1] * len(ONCE)


async def test_instance_that_ends_on_a_full_disk_ends_at_once_and_the_next_one_goes_on(
    autojump_clock: MockClock,
) -> None:
    "What waits for room was acknowledged to nobody: it is dropped, and found again."
    store = Full()
    async with scene(store=lambda: store) as s:
        jobid = await s.submit(run_s=10)
        store.full = True
        await trio.sleep(20)
    async with scene(store=lambda: store) as s:  # still full
        assert (await s.events(jobid))[-1] == "start"
        await trio.sleep(20)
        with pytest.raises(FluxError, match="no room: the disk is full"):
            await s.submit()
    store.full = False
    async with scene(store=lambda: store) as s:
        await s.wait(jobid)
        assert await times(s, jobid) == [1] * len(ONCE)


N_MEMOS = 10  # together longer than the free pages of the file


class SmallFile(SqliteStore):
    """The real store, whose file cannot grow while it is `full`."""

    pages_max: int | None = None  # to be set before the next commit

    def commit(self, ops: Iterable[Op]) -> None:
        if self.pages_max is not None:
            self._db.execute(f"PRAGMA max_page_count = {self.pages_max}")
            self.pages_max = None
        super().commit(ops)


async def test_full_file_is_waited_for(tmp_path: Path) -> None:
    "The same with SQLite itself: what is longer than the room in its pages waits until it grows."
    stores: list[SmallFile] = []

    def store() -> SmallFile:
        stores.append(SmallFile(tmp_path / STATE_FILE))
        return stores[-1]

    with trio.fail_after(DEADLINE_S):
        async with scene(store=store) as s:
            await s.call(topics.JOB_QUEUE_START, {"start": False})
            jobid = await s.submit()
            stores[0].pages_max = 1  # a limit below its size is the size
            long = {"id": jobid, "memo": {"long": "x" * 15_000}}
            async with trio.open_nursery() as nursery:
                for _ in range(N_MEMOS):
                    nursery.start_soon(s.call, topics.JOB_MEMO, long)
                while "silent" not in await s.status():  # noqa: ASYNC110 - the store has a thread
                    await trio.sleep(0.01)
                assert "database or disk is full" in (await s.status())["silent"][0]
                with pytest.raises(FluxError, match="no room: the disk is full"):
                    await s.submit()
                stores[0].pages_max = 1 << 30
            await s.call(topics.JOB_QUEUE_START, {"start": True})
            await s.wait(jobid)
            assert (await s.events(jobid)).count("memo") == N_MEMOS
            assert any("there is room again" in line for line in s.log(Level.NOTICE))
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            assert (await s.events(jobid))[-1] == "clean"
            found: dict[str, Any] = await s.call(topics.LIST_ID, {"id": jobid, "attrs": ["state"]})
            assert found["job"]["id"] == jobid
