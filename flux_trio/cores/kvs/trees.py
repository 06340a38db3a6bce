"""What flux-core's kvs does with keys: directories, and operations on them. Pure.

Here keys are flat, so that a directory is there as long as there is a key below it; an empty one is
not stored. A key has either a value, or keys below it: to keep that, a commit of operations of
flux-core's is preceded by a read of what its keys lead through (`asked_of`), and then becomes ops
of the store (`ops_of`). As in flux-core, a put replaces a directory, and a value that is in the way
of a key becomes a directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from flux_trio.cores.kvs.ops import Append, Op, Put, TreeAsked, TreeFound, Unlink, check_key
from flux_trio.editions import flux_kvs
from flux_trio.formats import FormatError, treeobj
from flux_trio.formats.meanings import JsonObject, KvsKey
from flux_trio.messages import Errno, FluxError, Request

Found: TypeAlias = Mapping[str, TreeFound]
"""What was read, by key."""

_OF_JOB: Final = 6  # names in job.<dothex>.<name>, which are never in the way of each other


def check_flags(request: Request, flags: int, known: int) -> None:
    """Raise FluxError(EPROTO) for a flag that this method has not."""
    if flags & ~known:
        text = f"{request.topic}: flags: expected a sum of flags in {known}, got {flags}"
        raise FluxError(Errno.EPROTO, text)


def normalized(key: str) -> str:
    """Return `key` without periods that mean nothing; "" is the root. Raises FluxError(EINVAL)."""
    names = ".".join(name for name in key.split(".") if name)
    if not key:
        raise FluxError(Errno.EINVAL, "key: expected a name, or a period for the root")
    return check_key(names) if names else ""


def above(key: str) -> list[str]:
    """Return the directories that `key` is in, the root not among them."""
    names = key.split(".")
    return [".".join(names[:n]) for n in range(1, len(names))]


def operations_of(asked: Sequence[flux_kvs.Operation]) -> list[Op]:
    """Return the operations of a commit, their keys normalized.

    Raises FluxError: EINVAL for the root and for a treeobj of another version, EPROTO for no
    treeobj, ENOTSUP for one that is not stored.
    """
    return [op for each in asked for op in _operations(each)]


def _operations(asked: flux_kvs.Operation) -> Iterable[Op]:
    key, found = normalized(asked.key), asked.dirent
    if not key:
        raise FluxError(Errno.EINVAL, f"key {asked.key!r}: the root can be neither put nor removed")
    if isinstance(found, dict) and found.get("ver") != 1:
        text = f"{key}: expected a treeobj of version 1, got {found.get('ver')!r:.80}"
        raise FluxError(Errno.EINVAL, text)
    if asked.flags & ~flux_kvs.APPEND:
        text = f"{key}: flags: expected 0 or {flux_kvs.APPEND}, got {asked.flags}"
        raise FluxError(Errno.EPROTO, text)
    if found is None:
        yield Unlink(key)
    elif asked.flags:
        yield Append(key, _text_of(key, found))
    elif treeobj.is_of_type(found, "dir"):
        yield from _puts(key, found)
    else:
        yield Put(key, _text_of(key, found))


def _puts(key: str, found: dict[str, Any]) -> Iterable[Op]:
    """Return the ops that put a directory, which is given whole."""
    entries = treeobj.entries_of(found)
    if entries is None:
        raise FluxError(Errno.EPROTO, f"{key}: expected a treeobj, got {found!r:.80}")
    if not entries:
        text = f"{key}: an empty directory is not stored: put a key into it"
        raise FluxError(Errno.ENOTSUP, text)
    yield Unlink(key)
    for name, each in entries.items():
        below = check_key(f"{key}.{name}")
        if treeobj.is_of_type(each, "dir"):
            yield from _puts(below, each)
        else:
            yield Put(below, _text_of(below, each))


def _text_of(key: str, found: Any) -> str:
    kind = treeobj.kind_of(found)
    if kind in ("valref", "dirref"):
        text = f"{key}: expected a value, got a {kind}: there is no content store"
        raise FluxError(Errno.ENOTSUP, text)
    if kind == "symlink":
        raise FluxError(Errno.ENOTSUP, f"{key}: links are not stored")
    try:
        return treeobj.text_of(found)
    except FormatError as error:
        raise FluxError(Errno.EPROTO, f"{key}: {error}") from None


def asked_of(ops: Sequence[Op], start: str) -> list[TreeAsked]:
    """Return what is to be read before `ops` are stored; keys are below `start`, "" or a key."""
    keys: dict[str, None] = {}
    for op in ops:
        if isinstance(op, Unlink) or _is_of_job(op.key):
            continue
        keys |= dict.fromkeys(each for each in above(op.key) if len(each) > len(start))
        if isinstance(op, Append):
            keys[op.key] = None
    return [TreeAsked(key) for key in keys]


def _is_of_job(key: str) -> bool:
    return key.startswith("job.") and key.count(".") == _OF_JOB - 1


def ops_of(ops: Iterable[Op], found: Found) -> list[Op]:
    """Return the ops of the store; `found` has the answers to `asked_of`.

    Raises FluxError(EISDIR) for an append to a directory.
    """
    values = {key for key, each in found.items() if each.value is not None}
    directories = {key for key, each in found.items() if each.is_dir}
    stored: list[Op] = []
    for op in ops:
        key = op.key
        if isinstance(op, Append) and key in directories:
            raise FluxError(Errno.EISDIR, f"{key}: is a directory")
        if not isinstance(op, Append):  # what is there goes, with all that is below it
            values.discard(key)
        if not isinstance(op, Append) and key in directories:
            values = {each for each in values if not _is_at_or_below(each, key)}
            directories = {each for each in directories if not _is_at_or_below(each, key)}
        if isinstance(op, Unlink):
            stored.append(op)
            continue
        for each in above(key):
            if each in values:
                stored.append(Unlink(each))
                values.remove(each)
            directories.add(each)
        if isinstance(op, Put) and not _is_of_job(key):
            stored.append(Unlink(key))
        stored.append(op)
        values.add(key)
    return stored


def _is_at_or_below(key: str, other: str) -> bool:
    return key == other or key.startswith(f"{other}.")


def tree_of(found: TreeFound, key: str, flags: int) -> JsonObject:
    """Return the treeobj in the answer to a lookup with `flags`.

    Raises FluxError: ENOENT, EISDIR, ENOTDIR, EINVAL for what is no link, EBADMSG, EMSGSIZE.
    """
    key, value = key or ".", found.value
    if value is None and not found.is_dir:
        raise FluxError(Errno.ENOENT, f"{key}: no such key")
    if value is not None and not isinstance(value, str):
        raise FluxError(Errno.EBADMSG, value.text)
    if flags & flux_kvs.READLINK and not flags & flux_kvs.TREEOBJ:
        raise FluxError(Errno.EINVAL, f"{key}: no link")
    if value is not None:
        if flags & flux_kvs.READDIR and not flags & flux_kvs.TREEOBJ:
            raise FluxError(Errno.ENOTDIR, f"{key}: has a value, is no directory")
        return treeobj.val(value)
    if not wants_entries(flags):
        raise FluxError(Errno.EISDIR, f"{key}: is a directory")
    if found.is_cut:
        text = f"{key}: the directory is too large to be listed: read its keys one by one"
        raise FluxError(Errno.EMSGSIZE, text)
    for each in found.entries.values():
        if each is not None and not isinstance(each, str):
            raise FluxError(Errno.EBADMSG, each.text)
    return treeobj.directory(
        {
            name: treeobj.val(each) if isinstance(each, str) else treeobj.directory({})
            for name, each in found.entries.items()
        }
    )


def wants_entries(flags: int) -> bool:
    """Return whether a lookup with `flags` is answered with the entries of a directory."""
    return bool(flags & (flux_kvs.READDIR | flux_kvs.TREEOBJ))


class Place(msgspec.Struct, frozen=True):
    """A key of a namespace: as it is said, and in the store."""

    namespace: str
    key: str  # "" for the root
    stored: KvsKey
