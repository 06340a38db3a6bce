"""One value of the kvs, in the words of a test's default edition: see `tests.support.current`."""

from __future__ import annotations

from typing import Any

import flux_trio.editions
from flux_trio.editions import flux_kvs
from flux_trio.editions.kvs import CommitValues, KvsWords, Lookup

value_of = flux_kvs.value_of


def words() -> KvsWords:
    """How an instance of a test's default edition asks the kvs."""
    return flux_trio.editions.CLASSIC.kvs


def lookup_of(key: str) -> dict[str, Any]:
    """The payload of a kvs.lookup; `value_of` its answer."""
    return words().look_up(Lookup(key))


def commit_of(*ops: list[str]) -> dict[str, Any]:
    """The payload of a kvs.commit."""
    return words().commit(CommitValues(list(ops)))
