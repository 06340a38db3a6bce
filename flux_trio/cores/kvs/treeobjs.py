"""The kvs as Flux's own programs speak with it: values are treeobjs (RFC 11). Pure.

A request of theirs names a namespace. That of a job is what lies below `job.<dothex>.guest`; there
is no other one beside the primary one. Left out: directories and links as values, and roots of
other times.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from flux_trio.cores.kvs.ops import Append, Op, Put, Unlink
from flux_trio.editions import kvs
from flux_trio.formats import FormatError, job_key
from flux_trio.messages import Errno, FluxError, Payload, Request

PRIMARY: Final = "primary"
_OF_JOB: Final = "job-"


def is_flux(request: Request) -> bool:
    """Return whether a request has the form of Flux's own programs."""
    return isinstance(request.payload, dict) and "namespace" in request.payload


def ops_in(request: Request) -> list[Op]:
    """Return the ops of a kvs.commit of theirs. Raises FluxError."""
    asked = kvs.TREE_COMMIT.read(request)
    below = _below(asked.namespace)
    return [_op(f"{below}{each.key}", each) for each in asked.ops]


def key_in(request: Request) -> str:
    """Return the key of a kvs.lookup of theirs. Raises FluxError."""
    asked = kvs.TREE_LOOKUP.read(request)
    if asked.flags:
        text = f"flags {asked.flags}: directories, links and treeobjs of the kvs cannot be read"
        raise FluxError(Errno.ENOSYS, text)
    return f"{_below(asked.namespace)}{asked.key}"


def value_of(text: str) -> Payload:
    """Return the answer to a kvs.lookup of theirs."""
    data = base64.b64encode(text.encode()).decode()
    return kvs.TREE_VALUE.write(kvs.TreeValue({"ver": 1, "type": kvs.VAL, "data": data}))


def root_of(sequence: int) -> Payload:
    """Return the answer to a kvs.commit of theirs, the one with this number."""
    return kvs.ROOT.write(kvs.Root(rootref=f"sha1-{sequence:040x}", rootseq=sequence))


def _op(key: str, change: kvs.TreeChange) -> Op:
    if change.dirent is None:
        return Unlink(key)
    text = _text(key, change.dirent)
    return Append(key, text) if change.flags & kvs.APPEND else Put(key, text)


def _text(key: str, value: kvs.TreeObject) -> str:
    if value.type != kvs.VAL or not isinstance(value.data, str):
        text = f"{key}: expected a treeobj of the type {kvs.VAL}, got {value.type}"
        raise FluxError(Errno.ENOSYS, text)
    try:
        return base64.b64decode(value.data, validate=True).decode()
    except (binascii.Error, UnicodeError) as error:
        raise FluxError(Errno.EINVAL, f"{key}: expected base64 of UTF-8: {error}") from None


def _below(namespace: str) -> str:
    """Return what the keys of a namespace begin with. Raises FluxError(ENOTSUP)."""
    if namespace == PRIMARY:
        return ""
    number = namespace.removeprefix(_OF_JOB)
    if namespace.startswith(_OF_JOB) and number.isdecimal():
        try:
            return job_key(int(number), "guest.")
        except FormatError:
            pass
    raise FluxError(Errno.ENOTSUP, f"{namespace}: there is no such namespace")
