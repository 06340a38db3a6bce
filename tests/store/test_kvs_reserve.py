"""The room that is set aside: who gets it, and when it is kept again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from flux_trio.cores.kvs.ops import DiskFree, Op, Put, Stored, StoreOps
from flux_trio.messages import Errno
from flux_trio.services.kvs import room_of
from flux_trio.store import room
from flux_trio.store.executing import execute
from flux_trio.store.sqlite_store import SqliteStore
from flux_trio.store.stores import StoreError

OPS = [Put("a", "1")]


class Full(SqliteStore):
    """A disk that has no room but what is set aside."""

    def commit(self, ops: Iterable[Op]) -> None:
        if (self.path.parent / room.RESERVE_FILE).exists():
            raise StoreError(Errno.ENOSPC, "full")
        super().commit(ops)


@pytest.mark.parametrize("frees", [True, False])
def test_what_frees_room_is_stored_where_room_was_set_aside(tmp_path: Path, frees: bool) -> None:
    with room.reserve(tmp_path):
        store = Full(tmp_path / "kvs.sqlite")
        done = execute(store, StoreOps([*OPS], frees))
        assert done == (Stored() if frees else Stored(Errno.ENOSPC, "full"))
        assert store.lookup(["a"]) == (["1"] if frees else [None])
        store.close()


def test_room_is_kept_again_when_there_is_twice_as_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "kvs.sqlite")
    assert not store.give_reserve(), "nothing is set aside"
    with room.reserve(tmp_path):
        assert (tmp_path / room.RESERVE_FILE).stat().st_size == room.RESERVE_BYTES
        assert store.give_reserve()
        for free, is_last in ((room.RESERVE_BYTES, True), (2 * room.RESERVE_BYTES, False)):
            monkeypatch.setattr(room, "free_bytes", lambda _, free=free: free)
            monkeypatch.setattr(store, "disk_free", lambda free=free: free)
            assert room_of(store) == DiskFree(free, is_last)
            assert (tmp_path / room.RESERVE_FILE).exists() is not is_last
    store.close()
