"""The kvs core with a store that does not wait: a round ends in the turn in which it begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Never

from flux_trio.cores.kvs.ops import (
    Fetch,
    KvsAction,
    KvsTimer,
    MakeBackup,
    StopBackup,
    StoreAction,
    StoreInput,
    StoreOps,
)
from flux_trio.cores.turns import CommonAction, CommonInput, Core
from flux_trio.messages import Response
from flux_trio.store.executing import back_up, execute
from flux_trio.store.stores import Store


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
