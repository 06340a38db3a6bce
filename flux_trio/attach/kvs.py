"""The kvs in flux-core's shapes: what is at a key is a treeobj (RFC 11). Pure.

A value has its text in base64; there are also links, directories and namespaces. Each function for
a request returns its topic and payload; each reader of an answer raises FluxError: the error of the
kvs, or EPROTO that names the key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec

from flux_trio.messages import Errno, FluxError, Payload, Response, expect_payload, topics

PRIMARY: Final = "primary"
NAMESPACE_CREATE: Final = "kvs.namespace-create"
NAMESPACE_REMOVE: Final = "kvs.namespace-remove"
NAMESPACE_LIST: Final = "kvs.namespace-list"
HASHES: Final = ("sha1", "sha256")  # values of the attribute content.hash

_APPEND: Final = 32  # FLUX_KVS_APPEND: of an operation
_TREEOBJ: Final = 16  # answer with the treeobj as it is stored
_EMPTY: Final = b'{"data":{},"type":"dir","ver":1}'

Op: TypeAlias = dict[str, Any]
Ask: TypeAlias = tuple[str, Payload]
"""The topic and the payload of a request."""


class Tree(msgspec.Struct, frozen=True):
    """A treeobj."""

    type: str
    data: Any = None


class _Found(msgspec.Struct, frozen=True):
    val: Tree


# Requests


def look_up(key: str, namespace: str = PRIMARY) -> Ask:
    return topics.KVS_LOOKUP, {"key": key, "namespace": namespace, "flags": 0}


def look_up_tree(key: str, namespace: str = PRIMARY) -> Ask:
    """Ask for the treeobj that is stored; a link is not followed."""
    return topics.KVS_LOOKUP, {"key": key, "namespace": namespace, "flags": _TREEOBJ}


def commit(ops: Iterable[Op], namespace: str = PRIMARY) -> Ask:
    return topics.KVS_COMMIT, {"namespace": namespace, "flags": 0, "ops": list(ops)}


def create(namespace: str, owner: int, root: str) -> Ask:
    """Ask for a namespace that begins with the directory at the blobref `root`."""
    new = {"namespace": namespace, "rootref": root, "owner": owner, "flags": 0}
    return NAMESPACE_CREATE, new


def remove(namespace: str) -> Ask:
    return NAMESPACE_REMOVE, {"namespace": namespace}


def append(key: str, text: str) -> Op:
    return {"key": key, "flags": _APPEND, "dirent": treeobj(text)}


def put(key: str, text: str) -> Op:
    return {"key": key, "flags": 0, "dirent": treeobj(text)}


def unlink(key: str) -> Op:
    return {"key": key, "flags": 0, "dirent": None}


def link(key: str, namespace: str) -> Op:
    """Let `key` stand for all that is in `namespace`."""
    target = {"namespace": namespace, "target": "."}
    return {"key": key, "flags": 0, "dirent": {"ver": 1, "type": "symlink", "data": target}}


def graft(key: str, root: Tree) -> Op:
    """Put the directory `root` of a namespace at `key`."""
    return {"key": key, "flags": 0, "dirent": {"ver": 1, "type": root.type, "data": root.data}}


def treeobj(text: str) -> dict[str, Any]:
    """Return the treeobj of a value."""
    return {"ver": 1, "type": "val", "data": base64.b64encode(text.encode()).decode()}


def empty_root(hash_name: str) -> str:
    """Return the blobref of an empty directory, which each kvs has; `hash_name`: content.hash.

    Raises ValueError for a hash that is not in HASHES.
    """
    if hash_name not in HASHES:
        raise ValueError(f"content.hash: expected {' or '.join(HASHES)}, got {hash_name!r:.80}")
    return f"{hash_name}-{hashlib.new(hash_name, _EMPTY).hexdigest()}"


# Answers


def tree_in(response: Response, key: str) -> Tree | None:
    """Return the treeobj that a lookup of `key` has found; None for a key that is absent."""
    if response.errnum == Errno.ENOENT:
        return None
    check(response, key)
    try:
        return expect_payload(response, _Found).val
    except FluxError as error:
        raise FluxError(Errno.EPROTO, f"{key}: {error.text}") from None


def text_in(response: Response, key: str) -> str | None:
    """Return the value that a lookup of `key` has found; None for a key that is absent."""
    tree = tree_in(response, key)
    if tree is None:
        return None
    try:
        return text_of(tree)
    except ValueError as error:
        text = f"{key}: {response.topic}: payload.val: {error}"
        raise FluxError(Errno.EPROTO, text) from None


def text_of(tree: Tree) -> str:
    """Return the text of a value. ValueError says what came instead."""
    if tree.type != "val" or not isinstance(tree.data, str):
        raise ValueError(f"expected a treeobj of type val, got {tree.type!r}")
    try:
        return base64.b64decode(tree.data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError(f"expected text in base64: {error}") from None


def check(response: Response, what: str) -> None:
    """Raise FluxError if the answer is an error; its text names `what`."""
    if response.errnum:
        error = FluxError(response.errnum, response.error_text)
        raise FluxError(error.errnum, f"{response.topic}: {what}: {error.text}")
