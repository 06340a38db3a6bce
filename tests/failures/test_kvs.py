"""What happens when the kvs ends or hangs: the instance stops and has lost nothing confirmed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from flux_trio.broker import Handle, ModuleCrashed, ModuleNotStarted, ModuleSpec
from flux_trio.cores.job_index import ENDED
from flux_trio.cores.job_manager.jobs.ledger import MAX_JOBID_KEY
from flux_trio.cores.kvs.ops import Op, Put
from flux_trio.formats import LOST_AND_FOUND, Jobspec, format_fluid, job_key
from flux_trio.instance import durable_store
from flux_trio.messages import Errno, Event, FluxError, Request, topics
from flux_trio.store.fsck import repair_file
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.state_directory import STATE_FILE
from flux_trio.store.stores import MemoryStore, StoreError
from tests.support.failing import CONFIG, HOUR, Scene, scene

DEADLINE_S = 300.0  # only what hangs takes so long, however busy the machine is


class Breaks(MemoryStore):
    """Fails in a way that no store should, at the key `bad`."""

    def lookup(
        self, keys: Sequence[str], chars_max: int | None = None, at_least: int = 1
    ) -> list[str | None]:
        if "bad" in keys:
            raise ZeroDivisionError("bad sector")
        return super().lookup(keys, chars_max, at_least)


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
        self.has_much_unsettled = False
        self.sweep, self.reclaim = self.inner.sweep, self.inner.reclaim
        self.disk_free, self.keep_reserve = self.inner.disk_free, self.inner.keep_reserve
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
        assert len(confirmed) == 5, "it crashed as was meant, not before"
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


# Damage to the state file


def damage(file: Path, key: str, old: str, new: str) -> None:
    """In the last part of a value, replace `old` by `new`."""
    db = sqlite3.connect(file)
    query = "SELECT text, number FROM part WHERE key = ? ORDER BY number DESC LIMIT 1"
    text, number = db.execute(query, [key]).fetchone()
    assert old in text
    db.execute("UPDATE part SET text = ? WHERE number = ?", [text.replace(old, new), number])
    db.commit()
    db.close()


async def keys_below(s: Scene, prefix: str) -> list[str]:
    keys: list[str] = (await s.call(topics.KVS_OWN.dir, {"prefix": prefix}))["keys"]
    return keys


async def until_below(s: Scene, prefix: str, *, some: bool) -> list[str]:
    while bool(keys := await keys_below(s, prefix)) != some:  # noqa: ASYNC110 - nothing tells of it
        await trio.sleep(0.01)
    return keys


async def until_listed(s: Scene, jobids: list[int]) -> None:
    while await listed(s) != jobids:  # noqa: ASYNC110 - nothing tells of it
        await trio.sleep(0.01)


async def until_gone(s: Scene, module: str) -> None:
    while module in s.supervisor:  # noqa: ASYNC110 - nothing tells of it
        await trio.sleep(0.01)


async def listed(s: Scene) -> list[int]:
    jobs = (await s.call(topics.LIST_LIST, {"max_entries": 0, "states": 0xFF}))["jobs"]
    return sorted(job["id"] for job in jobs)


async def test_finished_job_that_is_damaged_is_set_aside_and_the_others_are_as_they_were(
    tmp_path: Path,
) -> None:
    "It costs that job alone: its key is named in the log, and what can be read of it is kept."
    with trio.fail_after(DEADLINE_S):
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            good, bad = await s.submit(run_s=0.01), await s.submit(run_s=0.01)
            for jobid in (good, bad):
                await s.wait(jobid)
        key = job_key(bad, "eventlog")
        damage(tmp_path / STATE_FILE, key, '"clean"', '"CLEAN"')
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            with pytest.raises(FluxError, match=f"{key}: part .* is not what was committed"):
                await s.call(topics.KVS_LOOKUP, {"key": key})
            directory = format_fluid(bad, "kvs")
            await until_below(s, directory, some=False)
            lost = f"{LOST_AND_FOUND}{directory.removeprefix('job')}"
            aside = await keys_below(s, LOST_AND_FOUND)
            assert {
                f"{lost}.{name}" for name in ("eventlog-damaged", "jobspec", "R", "reason")
            } <= {*aside}
            remains = (await s.call(topics.KVS_LOOKUP, {"key": f"{lost}.eventlog-damaged"}))[
                "value"
            ]
            assert '"submit"' in remains
            assert "CLEAN" not in remains
            (line,) = [line for line in s.log() if "moved to" in line]
            assert line.startswith(f"job-manager.crit: {directory}: moved to {LOST_AND_FOUND}: ")
            assert key in line
            await until_listed(s, [good])
            await s.wait(await s.submit(run_s=0.01))
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:  # and it stays so
            assert bad not in await listed(s)
            assert not [line for line in s.log() if "crit" in line]


async def test_finished_job_whose_place_in_the_index_is_damaged_is_set_aside(
    tmp_path: Path,
) -> None:
    with trio.fail_after(DEADLINE_S):
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            bad = await s.submit(run_s=0.01)
            await s.wait(bad)
            (row,) = await until_below(s, ENDED, some=True)
        damage(tmp_path / STATE_FILE, row, "[", "{")
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            with pytest.raises(FluxError, match=f"{row}: part"):
                await s.call(topics.KVS_LOOKUP, {"key": row})
            await until_below(s, ENDED, some=False)
            lost = f"{LOST_AND_FOUND}{format_fluid(bad, 'kvs').removeprefix('job')}"
            assert f"{lost}.eventlog" in await keys_below(s, lost)
            assert await keys_below(s, format_fluid(bad, "kvs")) == []


async def test_active_job_that_is_damaged_is_an_error_that_names_its_key(tmp_path: Path) -> None:
    "A job that somebody waits for is not dropped: the job manager does not start without it."
    with trio.fail_after(DEADLINE_S):
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            jobid = await s.submit(run_s=HOUR)
            await s.wait(jobid, "start")
        key = job_key(jobid, "eventlog")
        damage(tmp_path / STATE_FILE, key, '"start"', '"START"')
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            await until_gone(s, "job-manager")
            (text,) = [
                line.removeprefix("job-manager.crit: module job-manager: ")
                for line in s.log()
                if line.startswith("job-manager.crit: module job-manager: ")
            ]
            assert re.fullmatch(
                rf"cannot read the jobs: {re.escape(key)}: part \d+ is not what was committed "
                r"\(flux-trio fsck --repair\)",
                text,
            )
            # whoever wants something of it hears at once why not, and what to do
            jobs = {"max_entries": 0, "states": 0xFF}
            spec = Jobspec.from_command(["true"]).to_json()
            said = re.escape(f"job-manager ended: {text}")
            for topic, payload in (
                (topics.INGEST_SUBMIT, {"jobspec": spec}),
                (topics.LIST_LIST, jobs),
                (topics.LIST_STATS, {}),
                (topics.JOB_QUEUE_LIST, {}),
            ):
                with pytest.raises(FluxError, match=said) as refused:
                    await s.call(topic, payload)
                assert refused.value.errnum == Errno.ENOSYS
            directory = format_fluid(jobid, "kvs")
            assert key in await keys_below(s, directory)


async def test_mark_that_cannot_be_read_costs_no_job_manager(tmp_path: Path) -> None:
    "It may be on the page of finished jobs, and most state files have none."
    with trio.fail_after(DEADLINE_S):
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            first = await s.submit(run_s=0.01)
            await s.wait(first)
            ops = [["put", MAX_JOBID_KEY, "1"]]
            await s.call(topics.KVS_COMMIT, {"ops": ops})
        damage(tmp_path / STATE_FILE, MAX_JOBID_KEY, "1", "2")
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            later = await s.submit(run_s=0.01)
            assert later > first
            await s.wait(later)
            (line,) = [each for each in s.log() if each.startswith("job-manager.crit: ")]
            assert "the greatest id of a purged job is not known" in line
            assert MAX_JOBID_KEY in line


async def test_eventlog_that_cannot_be_understood_costs_that_job_alone(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            await s.call(topics.JOB_QUEUE_START, {"start": False, "nocheckpoint": True})
            good, bad = await s.submit(run_s=0.01), await s.submit(run_s=0.01)
        store = SqliteStore(tmp_path / STATE_FILE)
        store.commit([Put(job_key(bad, "eventlog"), "rubbish\n")])
        store.close()
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            await s.wait(good)
            lost = f"{LOST_AND_FOUND}{format_fluid(bad, 'kvs').removeprefix('job')}"
            keys = await until_below(s, lost, some=True)
            assert f"{lost}.eventlog-damaged" in keys
            assert any(
                f"{job_key(bad, 'eventlog')}: not a job eventlog" in each for each in s.log()
            )
            await until_below(s, format_fluid(bad, "kvs"), some=False)


async def test_instance_whose_state_lacks_acknowledged_changes_does_not_start(
    tmp_path: Path,
) -> None:
    "An older copy of the file, put in the place of the newer one."
    with trio.fail_after(DEADLINE_S):
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            await s.wait(await s.submit(run_s=0.01))
        older = (tmp_path / STATE_FILE).read_bytes()
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            await s.wait(await s.submit(run_s=0.01))
        (tmp_path / STATE_FILE).write_bytes(older)
        text = "module kvs: StoreError: .*: [0-9]+ acknowledged changes are missing"
        with pytest.RaisesGroup(pytest.RaisesExc(ModuleNotStarted, match=text)):
            async with scene(store=durable_store(CONFIG, tmp_path)):
                pytest.fail("it has started")
        repair_file(tmp_path / STATE_FILE)
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            assert len(await listed(s)) == 1


async def test_guest_cannot_have_a_job_set_aside(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with scene(store=durable_store(CONFIG, tmp_path)) as s:
            jobid = await s.submit(run_s=0.01)
            await s.wait(jobid)
            async with s.instance.connect("guest", userid=4242) as guest:
                payload = {"key": job_key(jobid, "eventlog"), "text": "gone"}
                guest.send(Event(topics.KVS_DAMAGED_EVENT, payload))
                await guest.call(topics.BROKER_INFO)
            await s.wait(await s.submit(run_s=0.01))
            assert await keys_below(s, LOST_AND_FOUND) == []
            assert jobid in await listed(s)
