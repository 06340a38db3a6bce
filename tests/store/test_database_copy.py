"""A copy of a state file that is in use."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flux_trio.cores.kvs.ops import Append, Put, Unlink
from flux_trio.messages import Errno
from flux_trio.store.database_copy import SLICE_PAGES
from flux_trio.store.fsck import check_file
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.stores import MemoryStore, StoreError
from tests.support.mutations import contents

LONG = "x" * 1000
KEYS = 3000  # so many long values are some 12 slices


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "state.sqlite")
    yield made
    made.close()


def test_copy_is_the_store_as_it_is_at_the_end(store: SqliteStore, tmp_path: Path) -> None:
    store.commit([Put(f"a.{n}", LONG) for n in range(KEYS)])
    while store.settle():
        pass
    visits = 0

    def between() -> None:
        """Change pages that are copied already, and such that are not."""
        nonlocal visits
        visits += 1
        store.commit([Put(f"b.{visits}", "new"), Append("a.0", "+"), Unlink(f"a.{KEYS - visits}")])
        if visits == 3:
            while store.settle():
                pass

    copied = tmp_path / "copy" / "state.sqlite"
    copied.parent.mkdir()
    store.backup(copied, between)
    assert visits > 5
    before = contents(store)
    assert before["a.0"] == LONG + "+" * visits
    store.commit([Put("later", "1")])
    assert sorted(path.name for path in copied.parent.iterdir()) == [
        "state.sqlite", "state.sqlite-acknowledged",
    ]  # fmt: skip
    assert copied.stat().st_mode & 0o777 == 0o600
    assert check_file(copied).damage == []
    copy = SqliteStore(copied)
    assert copy.remarks == []
    assert contents(copy) == before
    copy.commit([Put("own", "1")])
    copy.close()
    assert "own" not in contents(store)


class Gone(Exception):
    pass


def test_copy_that_is_stopped_leaves_nothing(store: SqliteStore, tmp_path: Path) -> None:
    store.commit([Put(f"a.{n}", LONG) for n in range(KEYS)])
    visits: list[int] = []

    def between() -> None:
        visits.append(len(list(tmp_path.glob("copy*"))))
        if len(visits) == 2:
            raise Gone

    with pytest.raises(Gone):
        store.backup(tmp_path / "copy", between)
    assert visits[0] >= 1
    assert list(tmp_path.glob("copy*")) == []
    store.commit([Put("a.0", "goes on")])
    assert store.lookup(["a.0"]) == ["goes on"]


@contextmanager
def files_of_at_most(nbytes: int) -> Iterator[None]:
    """As on a full disk, no file grows beyond `nbytes` in this block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_copy_without_room_leaves_nothing(store: SqliteStore, tmp_path: Path) -> None:
    store.commit([Put(f"a.{n}", LONG) for n in range(KEYS)])
    while store.settle():
        pass
    with files_of_at_most(SLICE_PAGES * 4096 * 3), pytest.raises(StoreError) as caught:
        store.backup(tmp_path / "copy", lambda: None)
    assert (caught.value.errnum, str(tmp_path / "copy") in caught.value.text) == (
        Errno.ENOSPC,
        True,
    )
    assert list(tmp_path.glob("copy*")) == []
    store.backup(tmp_path / "copy", lambda: None)


def test_file_that_is_there_is_not_touched(store: SqliteStore, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    with pytest.raises(StoreError, match="there: cannot be written: File exists"):
        store.backup(there, lambda: None)
    assert there.read_text() == "mine"


def test_directory_that_is_not_there(store: SqliteStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="copy: cannot be written: No such file or directory"):
        store.backup(tmp_path / "not" / "copy", lambda: None)


def test_store_in_memory_has_no_file() -> None:
    with pytest.raises(StoreError, match="memory only"):
        MemoryStore().backup(Path(os.devnull), lambda: None)
