"""The stores: one behaviour in memory and on disk, and what of the file survives what."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import flux_trio
from flux_trio.cores.kvs.ops import Append, Damaged, Op, Page, Put, Unlink
from flux_trio.messages import Errno
from flux_trio.store import changes
from flux_trio.store.fsck import check_file
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.stores import MemoryStore, Store, StoreError


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "kvs.sqlite")
    yield made
    made.close()


def abandon(store: SqliteStore) -> None:
    """Close the files as they are."""
    store._db.close()
    store._acknowledged.close()


def value(store: Store, key: str) -> str | Damaged | None:
    return store.lookup([key])[0]


def opening_error(path: Path) -> StoreError:
    with pytest.raises(StoreError) as caught:
        SqliteStore(path)
    assert str(path) in caught.value.text
    return caught.value


def test_lookup_ends_with_the_value_that_goes_beyond_its_bound(store: Store) -> None:
    keys = [f"k{n:02}" for n in range(40)]
    store.commit([Put(key, "x" * (20_000 if n % 7 == 3 else 100)) for n, key in enumerate(keys)])
    while store.settle():
        pass
    whole = store.lookup(keys)
    store.commit([Append("k01", "y"), Unlink("k02"), Put("k12", "z" * 9)])
    whole[1:3], whole[12] = ["x" * 100 + "y", None], "z" * 9
    assert store.lookup(keys) == whole
    assert store.lookup(keys, 20_000) == whole[:4]
    assert store.lookup(keys, 40_000) == whole[:11]
    assert store.lookup(keys, 1, at_least=30) == whole[:30]
    assert store.lookup(["k00", "k00", "k01"], 150) == [whole[0], whole[0]]
    assert store.lookup(["k02", "k03"], 1) == [None, whole[3]]


def test_lookup_of_long_values_holds_no_more_of_them_than_its_bound(tmp_path: Path) -> None:
    """One statement may look at 256 keys: values of users are up to a megabyte."""
    store = SqliteStore(tmp_path / "kvs.sqlite")
    keys = [f"k{n:02}" for n in range(64)]
    for n, key in enumerate(keys):
        store.commit([Put(key, "x" * (10 if n < 30 else 500_000))])
        while store.settle():
            pass
    tracemalloc.start()
    try:
        values = store.lookup(keys, 1_000_000)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        store.close()
    assert [len(text) for text in values if isinstance(text, str)] == [10] * 30 + [500_000] * 2
    assert most < 4_000_000


def test_value_is_what_was_put_and_then_appended(store: Store) -> None:
    store.commit([Append("a", "0"), Put("a", "1"), Append("a", "2")])
    store.commit([Append("a", "3")])
    assert value(store, "a") == "123"
    store.commit([Put("a", "4")])
    assert value(store, "a") == "4"


def test_absent_key_has_no_value_and_an_empty_value_is_one(store: Store) -> None:
    store.commit([Put("empty", "")])
    assert value(store, "empty") == ""
    assert value(store, "absent") is None


def test_unlink_takes_a_key_and_those_below_and_no_neighbours(store: Store) -> None:
    keys = ["job", "job-1", "job.1", "job.1.R", "job/1", "jobs", "jo"]
    store.commit([*[Put(key, "x") for key in keys], Unlink("job"), Unlink("absent")])
    assert store.dir("") == ["jo", "job-1", "job/1", "jobs"]


def test_what_follows_an_unlink_in_its_commit_stays(store: Store) -> None:
    store.commit([Append("a.b", "old"), Unlink("a"), Append("a.b", "new")])
    assert value(store, "a.b") == "new"


def test_dir_lists_all_below_sorted_and_not_the_key_itself(store: Store) -> None:
    store.commit(
        [Put(key, "x") for key in ["b.2", "b", "b.10", "b.2.c", "c", "b-", "b.\U0010fffe"]]
    )
    assert store.dir("b") == ["b.10", "b.2", "b.2.c", "b.\U0010fffe"]
    assert store.count("b") == 4
    assert store.count("absent") == 0
    assert len(store.dir("")) == 7


def test_pages_are_parts_of_a_listing_in_both_orders(store: Store) -> None:
    keys = [f"b.{n}" for n in range(5)]
    store.commit([*[Put(key, key.upper()) for key in ["a", "b", *keys, "c"]]])
    store.commit([Append("b.3", "+")])  # a value of two parts is one key
    first = store.page(Page("b", 2))
    assert (first.keys, first.values) == (keys[:2], ["B.0", "B.1"])
    rest = store.page(Page("b", 9, after=first.keys[-1]))
    assert (rest.keys, rest.values) == (keys[2:], ["B.2", "B.3+", "B.4"])
    assert store.page(Page("b", 9, after="b.4")).keys == []
    last = store.page(Page("b", 2, reverse=True, values=False))
    assert (last.keys, last.values) == (["b.4", "b.3"], [])
    assert store.page(Page("b", 9, after="b.3", reverse=True)).keys == ["b.2", "b.1", "b.0"]
    # what lies outside of the prefix begins or ends it
    assert store.page(Page("b", 9, after="a")).keys == keys
    assert store.page(Page("b", 9, after="c", reverse=True)).keys == keys[::-1]


def test_many_keys_are_written_replaced_and_read_at_once(store: Store) -> None:
    names = [f"k{n}" for n in range(1000)]
    store.commit([Put(name, name) for name in names])
    store.commit([op for name in names[::2] for op in (Put(name, "new"), Append(name, "er"))])
    asked = ["absent", *names, *reversed(names)]  # far apart as well
    expected = [None, *("newer" if int(name[1:]) % 2 == 0 else name for name in asked[1:])]
    assert store.lookup(asked) == expected
    store.commit([Unlink(name) for name in names[1:]])
    assert (store.dir(""), store.lookup([])) == (["k0"], [])


def test_any_text_comes_back_as_it_was(store: Store) -> None:
    text = "line\nnul\x00quote'\" \U0001f600"
    store.commit([Put("a", text), Append("a", text)])
    assert value(store, "a") == text * 2


KEYS = st.sampled_from(["a", "a.b", "a.b.c", "a.bc", "ab", "b", "ä.\U0001f600", "A"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(Put, KEYS, TEXTS), st.builds(Append, KEYS, TEXTS), st.builds(Unlink, KEYS)
)


class StoresAgree(RuleBasedStateMachine):
    """The file holds what memory holds, also after a close, SIGKILL, some slices."""

    @initialize()
    def make(self) -> None:
        self.tmp = tempfile.TemporaryDirectory()
        self.path = Path(self.tmp.name) / "0" / "kvs.sqlite"
        self.path.parent.mkdir()
        self.memory, self.sqlite = MemoryStore(), SqliteStore(self.path)
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(changes, "SLICE_CHANGES", 2)

    @rule(ops=st.lists(OPS, max_size=8))
    def commit(self, ops: list[Op]) -> None:
        self.memory.commit(ops)
        self.sqlite.commit(ops)

    @rule(slices=st.integers(1, 4))
    def settle(self, slices: int) -> None:
        for _ in range(slices):
            self.sqlite.settle()

    @rule()
    def reopen(self) -> None:
        self.sqlite.close()
        self.sqlite = SqliteStore(self.path)

    @rule(slices=st.integers(0, 3))
    def kill(self, slices: int) -> None:
        for _ in range(slices):
            self.sqlite.settle()
        left = self.path.parent.with_name(f"{int(self.path.parent.name) + 1}")
        shutil.copytree(self.path.parent, left)
        abandon(self.sqlite)
        self.path = left / self.path.name
        self.sqlite = SqliteStore(self.path)
        assert self.sqlite.remarks == []

    @rule(prefix=KEYS)
    def dir(self, prefix: str) -> None:
        assert self.memory.dir(prefix) == self.sqlite.dir(prefix)
        assert self.memory.count(prefix) == self.sqlite.count(prefix)

    @rule(prefix=KEYS | st.just(""), after=KEYS | st.just(""), reverse=st.booleans())
    def page(self, prefix: str, after: str, reverse: bool) -> None:
        page = Page(prefix, 2, after=after, reverse=reverse)
        assert self.memory.page(page) == self.sqlite.page(page)

    @invariant()
    def same_values(self) -> None:
        if hasattr(self, "sqlite"):
            keys = self.memory.dir("")
            assert self.sqlite.dir("") == keys
            assert self.sqlite.lookup(keys) == self.memory.lookup(keys)

    def teardown(self) -> None:
        if hasattr(self, "sqlite"):
            self.sqlite.close()
            assert check_file(self.path).damage == []
            self.patch.undo()
            self.tmp.cleanup()


TestStoresAgree = StoresAgree.TestCase
TestStoresAgree.settings = settings(max_examples=60, stateful_step_count=16)


def test_commit_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kvs.sqlite")
    store.commit([Put("a", "1")])
    store._db.execute("PRAGMA max_page_count = 1")  # no smaller than the file: the disk is full
    with pytest.raises(StoreError, match="cannot be written: database or disk is full") as caught:
        store.commit([Append("a", "2"), Unlink("b"), Put("big", "x" * 100_000)])
    assert caught.value.errnum == Errno.ENOSPC
    assert (value(store, "a"), value(store, "big")) == ("1", None)
    store.close()


def test_commit_that_breaks_off_leaves_nothing_behind(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kvs.sqlite")
    with pytest.raises(UnicodeEncodeError):  # the core lets no such text through
        store.commit([Put("a", "1"), Unlink("x"), Put("b", "\udc80")])
    store.commit([Put("c", "1")])
    assert store.dir("") == ["c"]
    store.close()


def test_closed_file_is_whole_by_itself(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "kvs.sqlite")
    store.commit([Put("a", "1")])
    store.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["kvs.sqlite", "kvs.sqlite-acknowledged"]


WRITER = """
import sys
from pathlib import Path
from flux_trio.cores.kvs.ops import Append, Put
from flux_trio.store import changes
from flux_trio.store.fsck import check_file
from flux_trio.store.sqlite_store import SqliteStore

store = SqliteStore(Path(sys.argv[1]))
for n in range(1_000_000):
    store.commit([Append("log", f"{n}\\n"), Put(f"pair.{n}.a", "x" * 500), Put(f"pair.{n}.b", "")])
    print(n, flush=True)
"""


@pytest.mark.real
def test_every_acknowledged_commit_survives_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "kvs.sqlite"
    env = {**os.environ, "PYTHONPATH": str(Path(flux_trio.__file__).parents[1])}
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) == 500:
                break
        writer.send_signal(signal.SIGKILL)
        acknowledged = [500, *(int(line) for line in writer.stdout if line.endswith("\n"))][-1]
    store = SqliteStore(path)
    assert store.remarks == []
    log = value(store, "log")
    assert isinstance(log, str)
    numbers = log.split()
    assert numbers == [str(n) for n in range(len(numbers))]
    assert len(numbers) > acknowledged
    assert len(store.dir("pair")) == 2 * len(numbers), "a commit is there whole or not at all"
    store.close()


@pytest.mark.real
def test_file_in_use_by_another_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kvs.sqlite"
    env = {**os.environ, "PYTHONPATH": str(Path(flux_trio.__file__).parents[1])}
    command = [sys.executable, "-c", f"{WRITER}    input()", str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "0\n"
        assert "another process is using it" in opening_error(path).text
        other.kill()
    SqliteStore(path).close()


@pytest.mark.parametrize("replaced", [False, True])
def test_commit_to_a_file_that_was_removed_is_refused(tmp_path: Path, *, replaced: bool) -> None:
    """What is not at its path is lost with the process: it must not be acknowledged."""
    path = tmp_path / "state" / "kvs.sqlite"
    path.parent.mkdir()
    store = SqliteStore(path)
    store.commit([Put("a", "1")])
    shutil.rmtree(path.parent)
    if replaced:
        path.parent.mkdir()
        path.touch()
    for _ in range(2):
        with pytest.raises(StoreError, match="was removed or replaced while its instance runs"):
            store.commit([Put("b", "2")])
    assert value(store, "a") == "1"
    abandon(store)


def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n" * 500)
    assert "file is not a database" in opening_error(path).text
    assert path.read_text().startswith("dear diary")


def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE cookies (a)")
    other.close()
    assert "another program" in opening_error(path).text


@pytest.mark.parametrize("count", [1, 7, 9, 1023, 1025, 2500])
def test_commit_of_any_number_of_rows_is_stored_whole(tmp_path: Path, count: int) -> None:
    "Statements are prepared for some numbers of rows, and filled up with rows that count nothing."
    store, model = SqliteStore(tmp_path / "kvs.sqlite"), MemoryStore()
    keys = [f"k{n}" for n in range(count)]
    for ops in (
        [Put(key, key) for key in keys],
        [Append(key, " and more") for key in keys] + [Put(f"{key}.below", "x") for key in keys],
        [Put(key, "") for key in keys[::2]],
        [Unlink(key) for key in keys[::3]] + [Append(key, "y") for key in keys[::5]],
    ):
        store.commit(ops)
        model.commit(ops)
        found = store.dir("")
        assert found == model.dir("")
        assert store.lookup(found) == model.lookup(found)
    store.close()
    whole = SqliteStore(tmp_path / "kvs.sqlite")
    assert whole.remarks == []
    whole.close()


def test_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kvs.sqlite"
    store = SqliteStore(path)
    for n in range(50):
        store.commit([Put(f"k{n}", "x" * 1000)])
    store.close()
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 6] = b"\xa5" * (4096 * 3)
    path.write_bytes(content)
    assert opening_error(path).errnum == Errno.EIO


def test_damage_that_shows_only_later_is_an_error_of_that_read(tmp_path: Path) -> None:
    path = tmp_path / "kvs.sqlite"
    store = SqliteStore(path)
    store.commit([Put(f"k{n}", "x" * 1000) for n in range(100)])
    store.settle()
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store._db.execute("PRAGMA shrink_memory")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    for key in ("k1", "k99"):
        read = store.lookup([key])[0]
        assert isinstance(read, Damaged)
        assert read.text.startswith(f"{key}: unreadable: database disk image is malformed")
    store._db.close()


@pytest.mark.parametrize("path", ["/proc/kvs.sqlite", "/dev/null/kvs.sqlite"])
def test_place_that_cannot_be_written_is_refused(path: str) -> None:
    assert "cannot be opened" in opening_error(Path(path)).text
