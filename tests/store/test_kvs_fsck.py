"""Checking a whole state file, repairing it, and the sweep of a running instance."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import trio

from flux_trio.cores.kvs.ops import Append, Put, Swept, Unlink
from flux_trio.messages import Errno
from flux_trio.services import kvs
from flux_trio.store.acknowledged import AcknowledgedFile, acknowledged_path
from flux_trio.store.fsck import check_file, repair_file
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.stores import StoreError
from tests.support.instance import DEADLINE_S
from tests.support.mutations import PAGE_BYTES, contents, spoil
from tests.support.serving import World

NAME = "state.sqlite"
JOBS = [f"job.0000.0000.0000.{n:04x}" for n in range(100)]


def made(path: Path) -> Path:
    store = SqliteStore(path)
    for job in JOBS:
        store.commit([Put(f"{job}.jobspec", "spec"), Append(f"{job}.eventlog", "submit\n")])
        store.settle()
        store.commit([Append(f"{job}.eventlog", "clean\n")])
        store.settle()
    store.commit([Put("resource.eventlog", "drain\n")])
    store.close()
    return path


@pytest.fixture(name="path")
def made_path(tmp_path: Path) -> Path:
    return made(tmp_path / NAME)


def overwrite(path: Path, old: bytes, new: bytes) -> None:
    """Replace `old` in the value that has it, and in what is left of the journal."""
    content = path.read_bytes()
    assert content.count(old) in (1, 2)
    assert len(old) == len(new)
    path.write_bytes(content.replace(old, new))


def test_whole_file_has_nothing_to_report_and_stays_as_it_is(path: Path) -> None:
    before = [(each.name, each.read_bytes()) for each in sorted(path.parent.iterdir())]
    report = check_file(path)
    assert (report.keys, report.damage) == (201, [])
    assert before == [(each.name, each.read_bytes()) for each in sorted(path.parent.iterdir())]


def test_altered_value_is_named(path: Path) -> None:
    overwrite(path, b"drain\n", b"brain\n")
    (damage,) = check_file(path).damage
    assert damage == "resource.eventlog: part 301 is not what was committed"


def test_lost_part_is_named(path: Path) -> None:
    store = SqliteStore(path)
    store._db.execute("DELETE FROM part WHERE number = 3")
    store.close()
    (damage,) = check_file(path).damage
    assert damage == f"{JOBS[0]}.eventlog: 2 parts were committed, 1 are there"


def test_lost_account_is_told(path: Path) -> None:
    store = SqliteStore(path)
    store._db.execute("DELETE FROM account")
    store.close()
    assert check_file(path).damage == [
        f"{path}: the file is damaged: it has no account",
        f"{path}: the heads of keys are damaged: the account is missing",
    ]
    repair_file(path)
    assert check_file(path).damage == []


def test_missing_changes_are_told(path: Path) -> None:
    note = AcknowledgedFile(acknowledged_path(path))
    note.write(305)
    note.close()
    (damage,) = check_file(path).damage
    assert damage.startswith(f"{path}: 4 acknowledged changes are missing: the last one found is 3")


@pytest.mark.parametrize("content", [b"", b"not a database\n" * 400])
def test_file_that_is_none_any_more_is_told(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    (damage,) = check_file(path).damage
    assert damage.startswith(f"{path}: ")
    with pytest.raises(StoreError, match="restore a copy of it"):
        repair_file(path)


def test_what_cannot_be_checked_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such file"):
        check_file(tmp_path / "nothing")
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="another process is using it"):
        check_file(path)
    store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 3")
    with pytest.raises(StoreError, match="written in layout 3, this version reads layout 4"):
        check_file(path)


def test_repair_keeps_what_is_whole_and_sets_damaged_jobs_aside(path: Path) -> None:
    store = SqliteStore(path)
    store._db.execute("DELETE FROM part WHERE number = 3")
    store._db.execute("DELETE FROM head WHERE key = ?", [f"{JOBS[1]}.eventlog"])
    store.close()
    note = AcknowledgedFile(acknowledged_path(path))
    note.write(999)
    note.close()
    kept, aside, old = repair_file(path)
    assert aside.endswith(f"1 are there: {JOBS[0]} is now in job-lost+found")
    assert kept.endswith(f"{JOBS[1]}.eventlog: 0 parts were committed, 2 are there: kept as it is")
    assert old == f"{path}-damaged: the original file"
    assert check_file(path).damage == []
    repaired = SqliteStore(path)
    lost = "job-lost+found.0000.0000.0000.0000"
    assert repaired.remarks == []
    assert repaired.dir(JOBS[0]) == []
    assert repaired.lookup([f"{lost}.jobspec", f"{lost}.eventlog-damaged"]) == ["spec", "submit\n"]
    assert "1 are there" in str(repaired.lookup([f"{lost}.reason"])[0])
    assert repaired.lookup([f"{JOBS[1]}.eventlog"]) == ["submit\nclean\n"]
    assert repaired.count("job") == 198
    repaired.close()
    assert check_file(path.with_name(f"{NAME}-damaged")).damage != []


def contents_of(path: Path) -> dict[str, object]:
    store = SqliteStore(path)
    assert store.remarks == []
    values = contents(store)
    store.close()
    return values


@pytest.mark.parametrize("trees", [("head",), ("part_by_key",), ("head", "part_by_key")])
def test_repair_finds_every_value_without_the_trees_that_list_them(
    path: Path, trees: tuple[str, ...]
) -> None:
    before = contents_of(path)
    db = sqlite3.connect(path)
    roots = dict(db.execute("SELECT name, rootpage FROM sqlite_master"))
    db.close()
    for tree in trees:
        spoil(path, roots[tree])
    repair_file(path)
    assert contents_of(path) == before
    assert check_file(path).damage == []


def test_repair_keeps_what_is_left_of_a_file_that_was_cut(path: Path) -> None:
    before = contents_of(path)
    os.truncate(path, path.stat().st_size * 3 // 4 // PAGE_BYTES * PAGE_BYTES)
    with pytest.raises(StoreError, match="flux-trio fsck --repair"):
        SqliteStore(path)
    repair_file(path)
    after = contents_of(path)
    assert check_file(path).damage == []
    whole = {key: value for key, value in after.items() if not key.startswith("job-lost+found")}
    assert len(whole) > len(before) // 4
    assert whole.items() <= before.items()


# The sweep


def test_sweep_reads_every_key_in_slices(path: Path) -> None:
    store = SqliteStore(path)
    places = [""]
    while (swept := store.sweep(places[-1])).after is not None:
        assert swept.damaged == []
        places.append(swept.after)
    assert len(places) == 1 + 201 // 64 + 1
    store.close()


def test_slice_of_a_sweep_ends_after_a_large_value(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / NAME)
    store.commit([Put(f"big.{n}", "x" * 900_000) for n in range(5)])
    store.settle()
    assert [store.sweep("").after, store.sweep("big.1").after] == ["big.1", "big.3"]
    store.close()


def test_service_sweeps_when_it_has_time_and_logs_damage_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sweeps: the second has nothing new to say."""
    overwrite(path, b"drain\n", b"brain\n")
    for name in ("TEND_AFTER_S", "SLICE_S", "SWEEP_S", "IDLE_S"):
        monkeypatch.setattr(kvs, name, 0.0)
    sweeps = 0

    class Counted(SqliteStore):
        def sweep(self, after: str) -> Swept:
            nonlocal sweeps
            sweeps += after == ""
            return super().sweep(after)

    async def main() -> None:
        world = World()
        client = world.client()
        serve = partial(kvs.run, store_factory=lambda: Counted(path))
        async with world.serving("kvs", serve):
            with trio.fail_after(DEADLINE_S):
                while sweeps < 3:
                    await client.ask("kvs.commit", {"ops": [["append", "other", "x"]]})
            stats = await client.ask("kvs.stats-get")
        assert stats["damaged"] == 1
        text = "damaged: resource.eventlog: part 301 is not what was committed"
        assert [entry.text for entry in world.log] == [text]

    trio.run(main)


def test_sweep_begins_again_a_day_after_its_end() -> None:
    begun = kvs.Tending(60.0)
    going = kvs.Tended(begun, [], "a", 0, None).then(60.0)
    assert (going.at, going.after, going.sweep_at) == (60.0 + kvs.SLICE_S, "a", 0.0)
    over = kvs.Tended(going, [], None, 0, None).then(70.0)
    assert (over.at, over.after) == (70.0 + kvs.IDLE_S, "")
    assert over.sweep_at == 70.0 + kvs.SWEEP_S
    later = kvs.Tended(over, [], None, 5000, None).then(80.0)  # looks at free pages meanwhile
    assert (later.at, later.sweep_at) == (80.0 + kvs.SLICE_S, over.sweep_at)


def test_free_pages_are_given_back_but_for_those_that_commits_use(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / NAME)
    store.commit([Put(f"k{n}", "x" * 400_000) for n in range(30)])
    store.settle()
    store.commit([Unlink(f"k{n}") for n in range(30)])
    store.settle()
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    length = (tmp_path / NAME).stat().st_size
    state, free = kvs.Tending(0.0, sweep_at=1e9), store.reclaim(1 << 20, 0)
    assert free > 2 * kvs.PAGES_MAX + kvs.PAGES_KEPT
    steps = 0
    while (tended := kvs.tend(store, state)).free > kvs.PAGES_KEPT:
        state, steps = tended.then(state.at), steps + 1
    assert tended.free == kvs.PAGES_KEPT
    assert steps == (free - kvs.PAGES_KEPT) // kvs.PAGES_MAX
    given_back = (free - kvs.PAGES_KEPT) * 4096
    assert (tmp_path / NAME).stat().st_size <= length - given_back, "while it is in use"
    store.close()


def test_full_disk_stops_no_sweep(path: Path) -> None:
    class Full(SqliteStore):
        def reclaim(self, kept: int, pages_max: int) -> int:
            raise StoreError(Errno.ENOSPC, "no room")

    store = Full(path)
    tended = kvs.tend(store, kvs.Tending(0.0))
    assert (tended.damaged, tended.after) == ([], f"{JOBS[31]}.jobspec")
    store.close()
