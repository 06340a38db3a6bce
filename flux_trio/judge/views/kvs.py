"""What messages write to and read from the KVS (`flux_trio.trace.kvs` has the forms)."""

from __future__ import annotations

from typing import Any

from flux_trio.judge.engine.selector import once, payload
from flux_trio.trace import Record
from flux_trio.trace.kvs import operations_of, text_of


@once
def commit_ops(record: Record) -> list[tuple[str, str, Any]]:
    """Return how (put, append, unlink), key and text of each operation of a kvs.commit."""
    return operations_of(payload(record))


def keys_asked(record: Record) -> list[Any]:
    """Return the keys of a request of LOOKUP_TOPICS."""
    return _listed(payload(record), "keys", "key")


def values_answered(record: Record) -> list[Any]:
    """Return the texts in a response of LOOKUP_TOPICS, None for a key without one."""
    content = payload(record)
    if "val" in content:
        return [text_of(content["val"])]
    return _listed(content, "values", "value")


def _listed(content: dict[str, Any], many: str, one: str) -> list[Any]:
    """Return what a message of kvs.lookup-all has under `many`, of kvs.lookup under `one`."""
    found = content.get(many, [content.get(one)])
    return found if isinstance(found, list) else []


def written_names(record: Record) -> set[str]:
    """Return the last part of each key that a commit writes, and `unlink` if the commit removes a
    key.
    """
    names = {str(key).rpartition(".")[2] for _, key, _ in commit_ops(record)}
    return names | {"unlink" for how, _, _ in commit_ops(record) if how == "unlink"}
