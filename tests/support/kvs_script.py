"""What a kvs core is asked in tests, and what it answers."""

from __future__ import annotations

from typing import Any, Final

from flux_trio.cores.kvs.core import KvsCore
from flux_trio.messages import Request, Response
from tests.support.asking import asked

PUT: Final = ["put", "a", "1"]


def commit(*ops: list[str], by: str = "alice", tag: int = 1) -> Request:
    return asked("kvs.commit", {"ops": list(ops)}, by=by, tag=tag)


def lookup(key: str, by: str = "alice", tag: int = 2) -> Request:
    return asked("kvs.lookup", {"key": key}, by=by, tag=tag)


def watch(key: str, by: str = "alice", tag: int = 3) -> Request:
    return asked("kvs.watch", {"key": key}, by=by, tag=tag, streaming=True)


def turn(core: KvsCore, *inputs: Any) -> list[Any]:
    return core.turn(0.0, list(inputs))


def answers(actions: list[Any]) -> list[tuple[int, int, Any]]:
    """(matchtag, errnum, payload) of each response."""
    return [(a.matchtag, a.errnum, a.payload) for a in actions if isinstance(a, Response)]
