"""What happens when the kvs ends or hangs: the instance stops and has lost nothing confirmed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from flux_trio.broker import Handle, ModuleCrashed, ModuleSpec
from flux_trio.instance import durable_store
from flux_trio.messages import Errno, FluxError, Request, topics
from flux_trio.services.kvs import MemoryStore, Op, StoreError
from tests.support.failing import CONFIG, HOUR, Scene, scene

DEADLINE_S = 300.0  # only what hangs takes so long, however busy the machine is


class Breaks(MemoryStore):
    """Fails in a way that no store should, at the key `bad`."""

    def lookup(self, keys: Sequence[str]) -> list[str | None]:
        if "bad" in keys:
            raise ZeroDivisionError("bad sector")
        return super().lookup(keys)


def crash(s: Scene) -> None:
    s.handle.send(Request(topics.KVS_LOOKUP, {"key": "bad"}, 99))


async def test_crash_ends_the_instance_with_an_error_that_says_why(
    autojump_clock: MockClock,
) -> None:
    "design, kvs raises: stop-the-world with a clear error."
    scenes: list[Scene] = []
    text = "module kvs: ZeroDivisionError: bad sector"
    with pytest.RaisesGroup(pytest.RaisesExc(ModuleCrashed, match=text)):
        async with scene(store=Breaks) as s:
            scenes.append(s)
            await s.submit(run_s=HOUR)
            crash(s)
            await trio.sleep_forever()
    assert f"kvs.crit: {text}" in scenes[0].log()
    assert (scenes[0].router.peers, scenes[0].router.services) == ({}, {})


async def test_return_of_the_kvs_is_a_crash(autojump_clock: MockClock) -> None:
    async def returns(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        handle.register("other")
        task_status.started()
        await trio.sleep(1)

    text = "module other: returned without being asked to"
    with pytest.RaisesGroup(pytest.RaisesExc(ModuleCrashed, match=text)):
        async with scene() as s:
            s.supervisor.specs["other"] = ModuleSpec("other", returns, essential=True)
            await s.supervisor.load("other")
            await trio.sleep_forever()


class BreaksOnDisk:
    """The real store; after `breaks` its commits fail in a way that no store should."""

    def __init__(self, statedir: Path) -> None:
        self.inner = durable_store(CONFIG, statedir)()
        self.waits_for_disk, self.remarks = self.inner.waits_for_disk, self.inner.remarks
        self.lookup, self.dir, self.close = self.inner.lookup, self.inner.dir, self.inner.close
        self.page, self.count = self.inner.page, self.inner.count
        self.sweep, self.reclaim = self.inner.sweep, self.inner.reclaim
        self.broken = False

    def commit(self, ops: Iterable[Op]) -> None:
        if self.broken:
            raise ZeroDivisionError("bad sector")
        self.inner.commit(ops)


async def test_what_was_confirmed_before_the_crash_is_there_after_it(tmp_path: Path) -> None:
    "Every job that was answered with an id is known to the next instance; one that was not is not."
    stores: list[BreaksOnDisk] = []

    def store() -> BreaksOnDisk:
        stores.append(BreaksOnDisk(tmp_path))
        return stores[-1]

    confirmed: list[int] = []
    with trio.fail_after(DEADLINE_S):
        with pytest.RaisesGroup(ModuleCrashed, flatten_subgroups=True, allow_unwrapped=False):
            async with scene(store=store) as s:
                await s.call(topics.JOB_QUEUE_START, {"start": False, "nocheckpoint": True})
                confirmed += [await s.submit() for _ in range(5)]
                stores[0].broken = True
                with pytest.raises(FluxError) as refused:
                    await s.submit()
                assert refused.value.errnum == Errno.ENOSYS
                await trio.sleep_forever()
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            listed = await s.call(topics.LIST_LIST, {"max_entries": 0})
            assert sorted(job["id"] for job in listed["jobs"]) == confirmed
            for jobid in confirmed:
                await s.wait(jobid)


class Bad(MemoryStore):
    """A disk that no longer takes anything, once it is `broken`."""

    broken = False

    def commit(self, ops: Iterable[Op]) -> None:
        if self.broken:
            raise StoreError(Errno.EIO, "bad sector")
        super().commit(ops)


REFUSED = "kvs store failed, commits are refused: bad sector"


async def test_disk_that_fails_refuses_jobs_and_still_tells_what_it_has(
    autojump_clock: MockClock,
) -> None:
    store = Bad()
    async with scene(store=lambda: store) as s:
        running = await s.submit(run_s=HOUR)
        store.broken = True
        with pytest.raises(FluxError, match=REFUSED):
            await s.submit()
        assert s.log() == [f"kvs.crit: {REFUSED}"]
        assert (await s.events(running))[-1] == "start"


async def test_job_manager_that_cannot_store_leaves_and_its_jobs_are_as_stored(
    autojump_clock: MockClock,
) -> None:
    "Nothing of the turn was told to anybody: the next one finds the job where it was."
    store = Bad()
    async with scene(store=lambda: store) as s:
        running = await s.submit(run_s=10)
        before = await s.events(running)
        store.broken = True
        await trio.sleep(60)
        assert "job-manager" not in s.supervisor
        assert any(f"cannot store events: {REFUSED}" in line for line in s.log())
        assert await s.events(running) == before
    store.broken = False
    async with scene(store=lambda: store) as s:
        await s.wait(running)
        events = await s.events(running)
        once = ("alloc", "start", "finish", "release", "free", "clean")
        assert [events.count(name) for name in once] == [1] * len(once)


@pytest.mark.parametrize("topic", [topics.MODULE_REMOVE, topics.MODULE_RELOAD])
async def test_kvs_is_refused_to_be_removed_or_reloaded_while_the_instance_runs(
    autojump_clock: MockClock, topic: str
) -> None:
    "design, kvs unload: refused while anyone depends on it."
    async with scene() as s:
        with pytest.raises(FluxError) as refused:
            await s.call(topic, {"name": "kvs"})
        assert (refused.value.errnum, refused.value.text) == (
            Errno.EBUSY,
            "module kvs is needed as long as the instance runs",
        )
        await s.wait(await s.submit())


async def test_kvs_that_hangs_times_nobody_out_and_shows_in_the_module_list(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        kvs = await s.make_mortal("kvs")
        before = s.log()
        kvs.end("hangs")
        s.handle.send(Request(topics.KVS_LOOKUP, {"key": "x"}, 99))
        await trio.sleep(HOUR)
        modules = (await s.call(topics.MODULE_LIST))["modules"]
        assert [each["name"] for each in modules if each["waiting"]] == ["kvs"]
        (idle,) = [each["idle"] for each in modules if each["name"] == "kvs"]
        assert idle >= HOUR
        assert s.log() == before
