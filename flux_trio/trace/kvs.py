"""What is written to and read from the KVS, in flux-trio's messages and in flux-core's.

flux-trio's kvs.commit has operations `[how, key, text]`, its lookups have texts. flux-core's
operations are objects with `key`, `flags` and `dirent`, which is null for a key that is removed;
its values are treeobjs (RFC 11), with the text in base64. What a job's own namespace has is below
job.<dothex>.guest once the job has ended: its keys are read as such.
"""

from __future__ import annotations

import binascii
import functools
from typing import Any, Final

from flux_trio.formats import FormatError, job_key, parse_fluid

APPEND: Final = 32
"""The flag of an operation of flux-core that appends."""
KEYS_MAX: Final = 1024  # keys whose job is remembered
DEPTH_MAX: Final = 64  # of the objects in a message in which values are looked for
_OF_JOB: Final = "job-"


def operations_of(content: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Return how (put, append, unlink), key and text of each operation of a commit's payload.

    The text is None where there is none. Directories and links of flux-core are left out.
    """
    ops, below = content.get("ops"), below_of(content.get("namespace"))
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
    text = text_of(value)
    is_append = type(flags) is int and flags & APPEND
    return None if text is None else ("append" if is_append else "put", key, text)


def below_of(namespace: Any) -> str:
    """Return where the keys of a namespace are once it has ended; "" for any but that of a job."""
    if not isinstance(namespace, str) or not namespace.startswith(_OF_JOB):
        return ""
    number = namespace.removeprefix(_OF_JOB)
    try:
        return job_key(int(number), "guest.") if number.isdecimal() else ""
    except FormatError:
        return ""


def text_of(treeobj: Any) -> str | None:
    """Return the text of a value; None for a directory, a link, or what is no text.

    A value that was printed as `with_texts` shows it has its text as it is.
    """
    if not isinstance(treeobj, dict) or treeobj.get("type") != "val":
        return None
    data, text = treeobj.get("data"), treeobj.get("text")
    if isinstance(text, str):
        return text
    try:
        return (
            binascii.a2b_base64(data, strict_mode=True).decode() if isinstance(data, str) else None
        )
    except ValueError:  # no base64, or no UTF-8
        return None


def with_texts(payload: Any, depth: int = DEPTH_MAX) -> Any:
    """Return a payload as people read it: each value of flux-core's has `text` in place of `data`.

    A value whose bytes are no text stays as it is, and so does what is deeper than `depth`.
    """
    match payload:
        case {"type": "val"} if (text := text_of(payload)) is not None:
            return {key: each for key, each in payload.items() if key != "data"} | {"text": text}
        case dict() if depth:
            return {key: with_texts(each, depth - 1) for key, each in payload.items()}
        case list() | tuple() if depth:
            return [with_texts(each, depth - 1) for each in payload]
    return payload


@functools.lru_cache(maxsize=KEYS_MAX)
def _job_of(key: str) -> tuple[int, str] | None:
    """Return the job of a key below job.<dothex>, and the rest of the key; None for another key."""
    parts = key.split(".")
    if parts[0] != "job" or len(parts) < 6:
        return None
    try:
        return parse_fluid(".".join(parts[:5])), ".".join(parts[5:])
    except FormatError:
        return None


def job_with(key: Any, rest: str) -> int | None:
    """Return the job whose `rest`, such as R, a key of the KVS names; None for another key."""
    job = _job_of(key) if isinstance(key, str) and key.endswith(rest) else None
    return job[0] if job is not None and job[1] == rest else None
