"""What is written to and read from the KVS, in flux-trio's messages and in flux-core's.

flux-trio's kvs.commit has operations `[how, key, text]`, its lookups have texts. flux-core's
operations are objects with `key`, `flags` and `dirent`, which is null for a key that is removed;
its values are treeobjs (RFC 11), with the text in base64. What a job's own namespace has is below
job.<dothex>.guest once the job has ended: its keys are read as such.
"""

from __future__ import annotations

import binascii
from typing import Any, Final

from flux_trio.formats import FormatError, job_key
from flux_trio.judge.engine.selector import once, payload
from flux_trio.trace import Record

APPEND: Final = 32
"""The flag of an operation of flux-core that appends."""
_OF_JOB: Final = "job-"


@once
def commit_ops(record: Record) -> list[tuple[str, str, Any]]:
    """Return how (put, append, unlink), key and text of each operation of a kvs.commit.

    The text is None where there is none. Directories and links of flux-core are left out.
    """
    content = payload(record)
    ops, below = content.get("ops"), _below(content.get("namespace"))
    if not isinstance(ops, list):
        return []
    return [found for op in ops if (found := _operation(op, below)) is not None]


def _operation(op: Any, below: str) -> tuple[str, str, Any] | None:
    if isinstance(op, (list, tuple)):
        return (op[0], op[1], op[2] if len(op) > 2 else None) if len(op) >= 2 else None
    if not isinstance(op, dict) or not isinstance(op.get("key"), str):
        return None
    key, value, flags = below + op["key"], op.get("dirent"), op.get("flags")
    if value is None:
        return ("unlink", key, None)
    text = _text_of(value)
    is_append = type(flags) is int and flags & APPEND
    return None if text is None else ("append" if is_append else "put", key, text)


def _below(namespace: Any) -> str:
    """Return where the keys of a namespace are once it has ended; "" for any but that of a job."""
    if not isinstance(namespace, str) or not namespace.startswith(_OF_JOB):
        return ""
    number = namespace.removeprefix(_OF_JOB)
    try:
        return job_key(int(number), "guest.") if number.isdecimal() else ""
    except FormatError:
        return ""


def _text_of(treeobj: Any) -> str | None:
    """Return the text of a value; None for a directory, a link, or what is no text."""
    if not isinstance(treeobj, dict) or treeobj.get("type") != "val":
        return None
    data = treeobj.get("data")
    try:
        return binascii.a2b_base64(data).decode() if isinstance(data, str) else None
    except ValueError:  # no base64, or no UTF-8
        return None


def keys_asked(record: Record) -> list[Any]:
    """Return the keys of a request of LOOKUP_TOPICS."""
    return _listed(payload(record), "keys", "key")


def values_answered(record: Record) -> list[Any]:
    """Return the texts in a response of LOOKUP_TOPICS, None for a key without one."""
    content = payload(record)
    if "val" in content:
        return [_text_of(content["val"])]
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
