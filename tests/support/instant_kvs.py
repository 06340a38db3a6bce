"""The real kvs core over memory, every answer at once."""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.cores.kvs.core import KvsCore
from flux_trio.cores.kvs.ops import Fetched, Stored
from flux_trio.editions import CLASSIC, Edition
from flux_trio.messages import ROLE_OWNER, Request, Response
from flux_trio.store.executing import execute
from flux_trio.store.stores import MemoryStore
from tests.support.asking import OWNER_USERID, asked


class InstantKvs:
    """What it returns is in the order it would be sent, watchers' answers included."""

    def __init__(self, edition: Edition = CLASSIC) -> None:
        self._own = edition.kvs.own
        self._core = KvsCore(edition=edition)
        self._store = MemoryStore()
        self._run([self._do(each) for each in self._core.start(0.0)])

    def take(self, request: Request, sender: str) -> list[Response]:
        """The answers to a request as a core of the module `sender` makes it."""
        stamped = msgspec.structs.replace(
            request, userid=OWNER_USERID, rolemask=ROLE_OWNER, routes=(sender,)
        )
        return self._run([stamped])

    def commit(self, *ops: list[str]) -> list[Response]:
        """Somebody else's commit: what watchers are told."""
        told = self._run([asked(self._own.commit, {"ops": list(ops)}, by="somebody")])
        return [response for response in told if response.routes != ("somebody",)]

    def value(self, key: str) -> str | None:
        """What is stored under `key`."""
        return self._store.lookup([key])[0]

    def keys(self, prefix: str) -> list[str]:
        """The keys below `prefix`."""
        return self._store.dir(prefix)

    def stored(self) -> list[str]:
        """The keys below `job`."""
        return self._store.dir("job")

    def _run(self, inputs: list[Any]) -> list[Response]:
        told = []
        while inputs:
            actions = self._core.turn(0.0, inputs)
            told += [action for action in actions if isinstance(action, Response)]
            inputs = [self._do(each) for each in actions if not isinstance(each, Response)]
        return told

    def _do(self, action: Any) -> Stored | Fetched:
        return execute(self._store, action)
