"""Damage to the state file and its write-ahead log: what is missing or altered is named."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from flux_trio.cores.kvs.ops import Append, Damaged, Page, Put, Unlink
from flux_trio.messages import Errno, Level
from flux_trio.store.acknowledged import AcknowledgedFile, acknowledged_path
from flux_trio.store.fsck import check_file
from flux_trio.store.layout import _TABLES, LAYOUT
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.stores import StoreError
from tests.support.mutations import contents, leaves, mutate, spoil

NAME = "kvs.sqlite"
WAL = f"{NAME}-wal"
MUTATIONS = 100  # 1,000 of them were tried
SEED = 20_261_122

Values = dict[str, str]


def fill(store: SqliteStore, jobs: range, *, settled: bool = True) -> None:
    """As jobs do: a key that is put, one that grows, one that is replaced or gone."""
    for job in jobs:
        key = f"job.0000.0000.{job:04x}"
        store.commit([Put(f"{key}.jobspec", "s" * (job % 9) * 300), Append(f"{key}.eventlog", "a")])
        if settled:
            store.settle()
        store.commit([Append(f"{key}.eventlog", f"event {n}\n" * 9) for n in range(3)])
        store.commit([Put(f"{key}.R", "r" * 200), Append(f"{key}.eventlog", "clean\n")])
        if job % 7 == 0:
            store.commit([Put(f"{key}.R", "another"), Unlink(f"job.0000.0000.{job - 7:04x}")])
    if settled:
        store.settle()


def spoil_in_the_middle(path: Path, *trees: str) -> None:
    """Spoil one leaf page of each tree."""
    db = sqlite3.connect(path)
    roots = dict(db.execute("SELECT name, rootpage FROM sqlite_master"))
    db.close()
    for tree in trees:
        pages = leaves(path, roots[tree])
        spoil(path, pages[len(pages) // 2])


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Values]:
    """A directory as SIGKILL leaves it, and its values: some in the journal, some in the WAL."""
    live, left = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("left")
    store = SqliteStore(live / NAME)
    fill(store, range(150))
    fill(store, range(150, 180), settled=False)
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    fill(store, range(180, 190), settled=False)
    fill(store, range(190, 210))
    fill(store, range(210, 220), settled=False)
    values = contents(store)
    for file in live.iterdir():
        shutil.copy(file, left)
    store.close()
    assert (left / WAL).stat().st_size > 100_000
    return left, {key: value for key, value in values.items() if isinstance(value, str)}


def found_after(directory: Path, expected: Values) -> tuple[bool, bool]:
    """Whether a value is lost or changed, and whether anything says so."""
    try:
        store = SqliteStore(directory / NAME)
    except StoreError:
        return False, True
    try:
        found = contents(store)
        asked = store.lookup(list(expected))
        reported = bool(store.remarks) or any(isinstance(v, Damaged) for v in found.values())
        for key, value in zip(expected, asked, strict=True):
            assert isinstance(value, Damaged) or value == expected[key], f"{key}: a wrong value"
        return found != expected, reported
    except StoreError:
        return True, True
    finally:
        store._db.close()
        store._acknowledged.close()


def copy_of(directory: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(directory, to)
    return to


def test_directory_that_nobody_damaged_is_whole(
    killed: tuple[Path, Values], tmp_path: Path
) -> None:
    left, values = killed
    assert found_after(copy_of(left, tmp_path / "copy"), values) == (False, False)


def test_no_mutation_is_silent(killed: tuple[Path, Values], tmp_path: Path) -> None:
    left, values = killed
    silent: list[str] = []
    effective = 0
    for seed in range(SEED, SEED + MUTATIONS):
        rng = Random(seed)
        copy = copy_of(left, tmp_path / "copy")
        said = mutate(copy / rng.choice([NAME, WAL]), rng)
        is_damaged, reported = found_after(copy, values)
        effective += is_damaged or reported
        if is_damaged and not reported:
            silent.append(f"seed {seed}: {said}")
    print(f"seeds from {SEED}: {effective} of {MUTATIONS} mutations did damage")
    assert silent == []
    assert effective > MUTATIONS // 4


@pytest.mark.parametrize("cut", ["log", "file", "both"])
def test_missing_acknowledged_changes_are_refused_with_their_number(
    killed: tuple[Path, Values], tmp_path: Path, cut: str
) -> None:
    "SQLite itself takes a log that is cut, or an empty file, for what was committed."
    copy = copy_of(killed[0], tmp_path / "copy")
    acknowledged = AcknowledgedFile(acknowledged_path(copy / NAME)).number
    for name in {"log": [WAL], "file": [NAME], "both": [NAME, WAL]}[cut]:
        (copy / name).write_bytes(b"")
    for _ in range(2):  # the next start does not take it for granted
        with pytest.raises(StoreError, match=r"acknowledged changes are missing") as caught:
            SqliteStore(copy / NAME)
        assert f"the last one acknowledged was {acknowledged} " in caught.value.text


def test_torn_tail_of_a_commit_that_nobody_acknowledged_is_no_damage(
    killed: tuple[Path, Values], tmp_path: Path
) -> None:
    "A process may be killed between the commit and the note of its number."
    left, values = killed
    copy = copy_of(left, tmp_path / "copy")
    store = SqliteStore(copy / NAME)
    store._acknowledged.write = lambda number: None  # type: ignore[method-assign]
    store.commit([Put("unacknowledged", "x" * 20_000)])
    shutil.copytree(copy, tmp_path / "later")
    store._db.close()
    log = tmp_path / "later" / WAL
    log.write_bytes(log.read_bytes()[:-9000])
    assert found_after(tmp_path / "later", values) == (False, False)


def test_number_is_noted_after_the_commit_and_before_it_returns(tmp_path: Path) -> None:
    "The other order would refuse, after SIGKILL between the two, a file that lacks nothing."
    store = SqliteStore(tmp_path / NAME)
    noted: list[tuple[int, bool]] = []

    def note(number: int) -> None:
        noted.append((number, store._db.in_transaction))
        (stored,) = store._db.execute("SELECT max(number) FROM journal").fetchone()
        assert stored == number

    store._acknowledged.write = note  # type: ignore[method-assign]
    store.commit([Put("a", "1")])
    store.commit([Put(f"k{n}", "1") for n in range(1000)])
    store.commit([Unlink("a")])
    store.close()
    assert noted == [(1, False), (1001, False), (1002, False)]


def test_note_that_cannot_be_written_is_no_commit_to_be_tried_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / NAME)

    def full(number: int) -> None:
        raise OSError(Errno.ENOSPC, "No space left on device")

    store._acknowledged.write = full  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="cannot be written: No space left") as caught:
        store.commit([Append("a", "1")])
    assert caught.value.errnum == Errno.EIO
    store._db.close()


def test_restart_of_the_machine_may_lose_commits_and_says_so(
    killed: tuple[Path, Values], tmp_path: Path
) -> None:
    "synchronous = normal promises to survive SIGKILL, and full to survive a loss of power."
    copy = copy_of(killed[0], tmp_path / "copy")
    file = AcknowledgedFile(acknowledged_path(copy / NAME))
    assert file.number is not None
    file._boot = "another"
    file.write(file.number)
    (copy / WAL).write_bytes(b"")
    with pytest.raises(StoreError, match="acknowledged changes are missing"):
        SqliteStore(copy / NAME, "full")
    store = SqliteStore(copy / NAME)
    ((level, text),) = store.remarks
    assert (level, "changes are missing" in text) == (Level.CRIT, True)
    assert "the machine was restarted" in text
    store.close()


@pytest.mark.parametrize("content", [None, b"", b"rubbish\n", b"00000000000000000001 x 00000000\n"])
def test_note_that_is_missing_or_damaged_is_remarked(
    killed: tuple[Path, Values], tmp_path: Path, content: bytes | None
) -> None:
    copy = copy_of(killed[0], tmp_path / "copy")
    note = acknowledged_path(copy / NAME)
    note.unlink() if content is None else note.write_bytes(content)
    store = SqliteStore(copy / NAME)
    assert [level for level, _ in store.remarks] == [Level.WARNING]
    store.close()
    SqliteStore(copy / NAME).close()


@pytest.mark.parametrize("other", [LAYOUT - 1, LAYOUT + 1])
def test_file_of_another_layout_is_refused_and_stays_as_it_is(tmp_path: Path, other: int) -> None:
    path = tmp_path / NAME
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {other}")
    before = path.read_bytes()
    with pytest.raises(StoreError) as caught:
        SqliteStore(path)
    expected = f"{path}: written in layout {other}, this version reads layout {LAYOUT}"
    assert caught.value.text == expected
    assert path.read_bytes() == before


def test_file_shrinks_after_much_is_unlinked(tmp_path: Path) -> None:
    path = tmp_path / NAME
    store = SqliteStore(path)
    store.commit([Put(f"job.{n}.output", "x" * 50_000) for n in range(40)])
    store.settle()
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.stat().st_size
    store.commit([Unlink("job")])
    store.settle()
    assert store.reclaim(0, 10) > 300
    store.close()
    assert path.stat().st_size < before / 20


def test_put_and_unlink_make_a_damaged_key_whole_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / NAME)
    for text in "12":
        store.commit([Append(key, text) for key in "ab"])
        store.settle()
    store._db.execute("DELETE FROM part WHERE number > 2")
    damage = "2 parts were committed, 1 are there"
    assert [getattr(v, "text", "") for v in store.lookup(["a", "b"])] == [
        f"{key}: {damage}" for key in "ab"
    ]
    store.commit([Put("a", "new"), Unlink("b")])
    assert store.lookup(["a", "b"]) == ["new", None]
    store.close()
    whole = SqliteStore(tmp_path / NAME)
    assert whole.remarks == []
    whole.close()


def test_key_whose_head_is_lost_is_listed_and_its_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / NAME
    store = SqliteStore(path)
    store.commit([Put(f"job.{n}", "x") for n in range(9)])
    store.settle()
    store._db.execute("DROP TRIGGER head_removed")  # as if the head were lost with its page
    store._db.execute("DELETE FROM head WHERE key = 'job.4'")
    layout = [statement for statement in _TABLES if "head_removed" in statement]
    store._db.execute(layout[0])
    store.close()
    damaged = SqliteStore(path)
    assert [text for _, text in damaged.remarks] == [
        f"{path}: the heads of keys are damaged: expected 9 parts in all, found 8"
    ]
    assert damaged.dir("job") == [f"job.{n}" for n in range(9)]
    assert damaged.count("job") == 9
    assert damaged.page(Page("job", 3, after="job.3")).keys == ["job.4", "job.5", "job.6"]
    (value,) = damaged.lookup(["job.4"])
    assert value == Damaged("job.4: 0 parts were committed, 1 are there", "job.4", "x")
    damaged.close()


def test_altered_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / NAME
    SqliteStore(path).close()
    other = sqlite3.connect(path)
    other.execute("DROP TRIGGER head_removed")
    other.close()
    with pytest.raises(StoreError, match=r"'CREATE TRIGGER head_removed .* is altered or missing"):
        SqliteStore(path)


def test_schema_that_is_no_text_any_more_is_refused(tmp_path: Path) -> None:
    "SQLite quotes it in its error, which Python cannot decode."
    path = tmp_path / NAME
    SqliteStore(path).close()
    content = path.read_bytes()
    assert content.count(b"AFTER DELETE ON head") == 1
    path.write_bytes(content.replace(b"AFTER DELETE ON head", b"AFTER DELETE O\xa3 head"))
    with pytest.raises(StoreError, match="malformed database schema"):
        SqliteStore(path)
    assert "malformed database schema" in check_file(path).damage[0]


def test_unlink_on_a_damaged_page_leaves_its_key_and_does_the_rest(tmp_path: Path) -> None:
    "One job that is damaged must not keep others from being purged, or a commit from being stored."
    path = tmp_path / NAME
    store = SqliteStore(path)
    keys = [f"job.{n}.jobspec" for n in range(200)]
    store.commit([Put(key, "x" * 500) for key in keys])
    store.close()
    db = sqlite3.connect(path)
    (page,) = db.execute(
        "SELECT pageno FROM dbstat WHERE name = 'part' AND pagetype = 'leaf' LIMIT 1 OFFSET 5"
    ).fetchone()
    db.close()
    content = bytearray(path.read_bytes())
    content[4096 * (page - 1) : 4096 * page] = bytes(4096)
    path.write_bytes(content)
    store = SqliteStore(path)
    bad = [key for key, value in zip(keys, store.lookup(keys), strict=True) if value != "x" * 500]
    assert 0 < len(bad) < 20
    store.commit([Put("before", "1"), *[Unlink(key) for key in keys], Put("after", "2")])
    store.settle()
    left = store.dir("job")
    assert {*bad} <= {*left}
    assert len(left) < len(bad) + 20  # of those beside them, what cannot be taken away either
    assert store.lookup(["before", "after"]) == ["1", "2"]
    assert all(isinstance(value, Damaged) for value in store.lookup(bad))
    number = store._pending.number
    store.close()
    assert AcknowledgedFile(acknowledged_path(path)).number == number


def test_keys_are_listed_as_long_as_the_pages_that_have_them_are_whole(tmp_path: Path) -> None:
    path = tmp_path / NAME
    store = SqliteStore(path)
    fill(store, range(150))
    last = Page("job", 20, reverse=True, values=False)
    expected = store.page(last).keys
    store.close()
    spoil_in_the_middle(path, "head", "part_by_key")
    store = SqliteStore(path)
    assert store.page(last).keys == expected
    with pytest.raises(StoreError, match=r"the keys after 'job\.' cannot be listed") as refused:
        store.dir("job")
    assert refused.value.errnum == Errno.EBADMSG
    store.close()
