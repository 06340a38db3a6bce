"""Performs the kvs core's actions on a store; an error of the store is in the result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Final

import msgspec

from flux_trio.cores.kvs.ops import BackedUp, Fetch, Fetched, MakeBackup, Stored, StoreOps
from flux_trio.messages import Errno
from flux_trio.store.stores import Store, StoreError
from flux_trio.store.trees import read_trees

STOPPED: Final = BackedUp(Errno.ECANCELED, "the client that has asked for the backup is gone")
"""The result of a backup after StopBackup."""


def execute(store: Store, action: StoreOps | Fetch) -> Stored | Fetched:
    """Commit or read."""
    try:
        if isinstance(action, StoreOps):
            return _commit(store, action)
        return Fetched(
            store.lookup(action.keys, action.chars_max, action.at_least),
            [store.dir(prefix) for prefix in action.prefixes],
            pages=[store.page(page) for page in action.pages],
            counts=[store.count(prefix) for prefix in action.counted],
            trees=read_trees(store, action.trees),
        )
    except StoreError as error:
        if isinstance(action, StoreOps):
            return Stored(error.errnum, error.text)
        return Fetched([], [], error.errnum, error.text)


def _commit(store: Store, action: StoreOps) -> Stored:
    """Commit; try again with the room that is set aside if the ops lead to more."""
    try:
        store.commit(action.ops)
    except StoreError as error:
        if not (action.frees and error.errnum == Errno.ENOSPC and store.give_reserve()):
            raise
        store.commit(action.ops)
    return Stored()


def back_up(store: Store, action: MakeBackup, between: Callable[[], None]) -> BackedUp:
    """Make a backup; an error of the store is in the result. `between` as in `Store.backup`."""
    try:
        store.backup(Path(action.path), between)
    except StoreError as error:
        return BackedUp(error.errnum, error.text)
    return BackedUp()


def execute_timed(store: Store, action: StoreOps | Fetch) -> Stored | Fetched:
    """Commit or read; the result of a commit has its duration."""
    began = perf_counter()
    result = execute(store, action)
    if isinstance(result, Stored):
        return msgspec.structs.replace(result, seconds=perf_counter() - began)
    return result
