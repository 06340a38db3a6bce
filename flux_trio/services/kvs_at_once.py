"""The kvs core with a store that does not wait: a round ends in the turn in which it begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Never

import msgspec

from flux_trio.cores.kvs.ops import (
    BackedUp,
    Fetch,
    Fetched,
    KvsAction,
    KvsTimer,
    MakeBackup,
    StopBackup,
    StoreAction,
    Stored,
    StoreInput,
    StoreOps,
)
from flux_trio.cores.turns import CommonAction, CommonInput, Core
from flux_trio.messages import Response
from flux_trio.store.stores import Store, StoreError


class KvsAtOnce(Core[KvsTimer, Never, Never]):
    """The core that `KvsCore` and its store are together."""

    def __init__(self, store: Store, core: Core[KvsTimer, StoreInput, StoreAction]) -> None:
        self._core = core
        self._store = store

    def start(self, now: float) -> list[CommonAction[KvsTimer]]:
        return self._settled(now, self._core.start(now))

    def turn(
        self, now: float, inputs: Sequence[CommonInput[KvsTimer]]
    ) -> list[CommonAction[KvsTimer]]:
        return self._settled(now, self._core.turn(now, inputs)) if inputs else []

    def _settled(self, now: float, todo: Sequence[KvsAction]) -> list[CommonAction[KvsTimer]]:
        """Do what is to be done at the store, until the core has every result."""
        actions: list[CommonAction[KvsTimer]] = []
        while todo:
            results: list[StoreInput] = []
            for action in todo:
                if type(action) is Response:  # isinstance of a Struct costs several times as much
                    actions.append(action)
                elif type(action) is StoreOps or type(action) is Fetch:
                    results.append(execute(self._store, action))
                elif type(action) is MakeBackup:
                    results.append(back_up(self._store, action, lambda: None))
                elif type(action) is not StopBackup:  # a backup is made in its turn
                    actions.append(action)
            todo = self._core.turn(now, results) if results else ()
        return actions


def execute(store: Store, action: StoreOps | Fetch) -> Stored | Fetched:
    """Do at the store what the core asks for; an error of the store is in the result."""
    try:
        if isinstance(action, StoreOps):
            store.commit(action.ops)
            return Stored()
        return Fetched(
            store.lookup(action.keys),
            [store.dir(prefix) for prefix in action.prefixes],
            pages=[store.page(page) for page in action.pages],
            counts=[store.count(prefix) for prefix in action.counted],
        )
    except StoreError as error:
        if isinstance(action, StoreOps):
            return Stored(error.errnum, error.text)
        return Fetched([], [], error.errnum, error.text)


def back_up(store: Store, action: MakeBackup, between: Callable[[], None]) -> BackedUp:
    """Make a backup; an error of the store is in the result. `between` as in `Store.backup`."""
    try:
        store.backup(Path(action.path), between)
    except StoreError as error:
        return BackedUp(error.errnum, error.text)
    return BackedUp()


def execute_timed(store: Store, action: StoreOps | Fetch) -> Stored | Fetched:
    """Do the same, and tell how long a transaction took."""
    began = perf_counter()
    result = execute(store, action)
    if isinstance(result, Stored):
        return msgspec.structs.replace(result, seconds=perf_counter() - began)
    return result
