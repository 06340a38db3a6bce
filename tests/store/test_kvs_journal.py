"""The journal: commits that are not yet in the tables of values, and damage to it."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Final

import pytest

from flux_trio.cores.kvs.ops import Append, Damaged, Op, Page, Put, Unlink
from flux_trio.messages import Errno
from flux_trio.store import changes, pending
from flux_trio.store.fsck import check_file, repair_file
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.stores import MemoryStore, StoreError
from tests.support.mutations import contents

NAME: Final = "kvs.sqlite"

SETTLED: Final[list[list[Op]]] = [
    [Put("put", "old"), Append("log", "1"), Put("a.b", "old"), Put("a.c", "old"), Put("z", "z")]
]
COMMITS: Final[list[list[Op]]] = [
    [Append("log", "2"), Put("put", "new"), Unlink("a"), Append("new", "x")],
    [Append("log", "3"), Append("a.b", "again"), Append("new", "y"), Unlink("z")],
    [Append("brief", ""), Unlink("brief"), Append("a.d", "d")],
]
LATER: Final[list[list[Op]]] = [
    [Append("log", "4"), Unlink("a.b"), Put("new", "z"), Append("z", "back")],
    [Append("one.below", "x"), Put("more.b", "x"), Append("more.b.c", "x"), Append("more.d", "x")],
    [Unlink("one"), Unlink("more"), Append("more.d", "y")],
]


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SLICE_CHANGES", 2)


def settle(store: SqliteStore) -> None:
    while store.settle():
        pass


def made(path: Path) -> SqliteStore:
    """A store whose tables have `SETTLED`, and whose journal has `COMMITS`."""
    store = SqliteStore(path)
    for commit in SETTLED:
        store.commit(commit)
    settle(store)
    for commit in COMMITS:
        store.commit(commit)
    return store


def killed(store: SqliteStore, to: Path) -> Path:
    """A copy of the file as SIGKILL leaves it; the store is abandoned."""
    shutil.copytree(store.path.parent, to)
    store._db.close()
    store._acknowledged.close()
    return to / store.path.name


def expected(*commits: list[Op]) -> dict[str, str | Damaged | None]:
    model = MemoryStore()
    for commit in commits:
        model.commit(commit)
    return contents(model)


@pytest.fixture(name="path")
def journal_path(tmp_path: Path) -> Path:
    """A file as SIGKILL leaves it, with `COMMITS` in its journal."""
    (tmp_path / "live").mkdir()
    return killed(made(tmp_path / "live" / NAME), tmp_path / "left")


def execute(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in statements:
        assert db.execute(statement).rowcount != 0
    db.commit()
    db.close()


def rows(store: SqliteStore, table: str) -> int:
    (count,) = store._db.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(count)


def test_commit_is_one_row_and_is_read_at_once(tmp_path: Path) -> None:
    store = made(tmp_path / NAME)
    assert rows(store, "journal") == len(COMMITS)
    assert rows(store, "part") == len(SETTLED[0])
    assert contents(store) == expected(*SETTLED, *COMMITS)
    assert store.count("a") == 2
    assert store.page(Page("", 3, after="z", reverse=True)).keys == ["put", "new", "log"]
    store.close()


def test_key_that_came_and_went_is_never_written(tmp_path: Path) -> None:
    store = made(tmp_path / NAME)
    written: list[str] = []
    store._db.set_trace_callback(written.append)
    settle(store)
    assert any("'log'" in statement for statement in written)
    assert not any("INSERT" in each and "'brief'" in each for each in written)
    assert (rows(store, "journal"), rows(store, "progress")) == (0, 0)
    store.close()


@pytest.mark.parametrize("slices", range(6))
def test_process_may_be_killed_after_any_slice(tmp_path: Path, slices: int) -> None:
    "Nothing is lost, and nothing that is in the tables is appended again."
    (tmp_path / "live").mkdir()
    store = made(tmp_path / "live" / NAME)
    left = [store.settle() for _ in range(slices)]
    assert left == [n < 3 for n in range(slices)], "eight changes, two in each slice"
    assert contents(store) == expected(*SETTLED, *COMMITS)
    for commit in LATER:
        store.commit(commit)
    path = killed(store, tmp_path / "left")
    assert check_file(path).damage == []
    for _ in range(2):  # and again, before and after the rest is settled
        again = SqliteStore(path)
        assert again.remarks == []
        assert contents(again) == expected(*SETTLED, *COMMITS, *LATER)
        again.close()
    assert check_file(path).damage == []


@pytest.mark.parametrize("slices", [1, 2])
def test_repair_after_a_kill_in_the_midst_of_settling_keeps_every_change(
    tmp_path: Path, slices: int
) -> None:
    (tmp_path / "live").mkdir()
    store = made(tmp_path / "live" / NAME)
    left = [store.settle() for _ in range(slices)]
    assert all(left), "some changes are not settled yet"
    for commit in LATER:
        store.commit(commit)
    path = killed(store, tmp_path / "left")
    assert repair_file(path) == [f"{path}-damaged: the original file"]
    assert check_file(path).damage == []
    repaired = SqliteStore(path)
    assert contents(repaired) == expected(*SETTLED, *COMMITS, *LATER)
    repaired.close()


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE journal SET ops = x'90' WHERE number = 13", "those up to 13 are not what was"),
        ("UPDATE journal SET sum = sum + 1 WHERE number = 13", "those up to 13 are not what was"),
        ("UPDATE journal SET number = 14 WHERE number = 13", "those up to 14 are not what was"),
        ("DELETE FROM journal WHERE number = 13", "some before 16 are missing"),
        ("UPDATE account SET number = 4", "some before 9 are missing"),
    ],
)
def test_damaged_journal_is_refused_and_repair_keeps_what_is_before(
    path: Path, statement: str, reason: str
) -> None:
    execute(path, statement)
    with pytest.raises(StoreError, match=r"the changes after .* are damaged") as refused:
        SqliteStore(path)
    assert reason in refused.value.text
    assert refused.value.errnum == Errno.EIO
    assert check_file(path).damage == [refused.value.text]
    assert f"{refused.value.text}: given up" in repair_file(path)
    assert check_file(path).damage == []
    store = SqliteStore(path)
    before = COMMITS[:1] if "13" in statement else []
    assert contents(store) == expected(*SETTLED, *before)
    store.close()


def test_end_of_the_journal_that_is_missing_is_refused(path: Path) -> None:
    execute(path, "DELETE FROM journal WHERE number = 16")
    with pytest.raises(StoreError, match="3 acknowledged changes are missing"):
        SqliteStore(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM journal",
        "DELETE FROM progress",
        "UPDATE progress SET done = done - 1",
        "UPDATE progress SET last = last - 3, sum = 0",
        "DELETE FROM journal WHERE number = 16",
        "DELETE FROM journal WHERE number = 9",
        "UPDATE account SET number = 20",
    ],
)
def test_damage_in_the_midst_of_settling_is_refused(tmp_path: Path, statement: str) -> None:
    "Else changes would be lost, or be written twice."
    (tmp_path / "live").mkdir()
    store = made(tmp_path / "live" / NAME)
    assert store.settle()
    path = killed(store, tmp_path / "left")
    execute(path, statement)
    with pytest.raises(StoreError, match=r"the changes after .* are damaged"):
        SqliteStore(path)
    assert any("are damaged" in line for line in check_file(path).damage)
    repair_file(path)
    assert check_file(path).damage == []
    SqliteStore(path).close()


def test_repair_without_an_account_keeps_the_journal(path: Path) -> None:
    execute(path, "DELETE FROM account")
    with pytest.raises(StoreError, match="it has no account"):
        SqliteStore(path)
    repair_file(path)
    store = SqliteStore(path)
    assert contents(store) == expected(*SETTLED, *COMMITS)
    store.close()


def test_pieces_of_a_damaged_part_are_kept(tmp_path: Path) -> None:
    "An eventlog may be one part: damage to an event costs that event."
    path = tmp_path / NAME
    store = SqliteStore(path)
    for event in ("submit\n", "dépend\n", "alloc\n", "clean\n"):
        store.commit([Append("log", event)])
    settle(store)
    assert rows(store, "part") == 1
    store.commit([Append("log", "more\n")])
    store._db.execute("UPDATE part SET text = replace(text, 'alloc', 'ALLOC')")
    (value,) = store.lookup(["log"])
    assert value == Damaged(
        "log: part 4 is not what was committed", "log", "submit\ndépend\nclean\nmore\n"
    )
    store._db.execute("UPDATE part SET marks = '[[3, 4]'")
    (value,) = store.lookup(["log"])
    assert isinstance(value, Damaged)
    assert value.remains == "more\n"
    store.close()


def test_full_disk_stops_settling_and_no_reads(tmp_path: Path) -> None:
    store = made(tmp_path / NAME)
    (size,) = store._db.execute("PRAGMA page_count").fetchone()
    store.commit([Put(f"k{n}", "x" * 3000) for n in range(9)])
    (size,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {size}")
    with pytest.raises(StoreError) as refused:
        settle(store)
    assert refused.value.errnum == Errno.ENOSPC
    assert store.lookup(["k8", "log"]) == ["x" * 3000, "123"]
    assert len(store.dir("")) == 14
    with pytest.raises(StoreError) as refused:
        store.commit([Put("more", "x" * 9000)])
    assert refused.value.errnum == Errno.ENOSPC
    store._db.execute("PRAGMA max_page_count = 10000")
    store.commit([Append("log", "4")])
    settle(store)
    settle(store)
    assert rows(store, "journal") == 0
    assert store.lookup(["k8", "log"]) == ["x" * 3000, "1234"]
    store.close()


def test_tables_that_cannot_be_written_fail_the_next_commit(tmp_path: Path) -> None:
    store = made(tmp_path / NAME)
    store._db.execute("DROP TABLE head")
    with pytest.raises(StoreError, match="no such table: head"):
        settle(store)
    with pytest.raises(StoreError, match="no such table: head"):
        store.commit([Append("log", "4")])
    store._db.close()


def test_commits_that_nobody_settles_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "KEYS_MAX", 10)
    store = SqliteStore(tmp_path / NAME)
    for n in range(100):
        store.commit([Append(f"k{n}", "x")])
        assert store.has_much_unsettled == (n >= 10)
        assert rows(store, "journal") <= 43
    assert len(store.dir("")) == 100
    store.close()
