"""The kvs in flux-core's shapes: a value is a treeobj with its text in base64 (RFC 11)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flux_trio.attach.handle import FluxHandle
from flux_trio.messages import Errno, FluxError, topics

PRIMARY: Final = "primary"
APPEND: Final = 32  # FLUX_KVS_APPEND: of an operation


class Found(msgspec.Struct):
    """The answer to kvs.lookup."""

    val: Any


async def lookup(flux: FluxHandle, key: str, namespace: str = PRIMARY) -> str | None:
    """Return the text at `key`, None if there is none; FluxError for another failure."""
    asked = {"key": key, "namespace": namespace, "flags": 0}
    try:
        found = await flux.ask(topics.KVS_LOOKUP, Found, asked)
    except FluxError as error:
        if error.errnum == Errno.ENOENT:
            return None
        raise
    try:
        return text_of(found.val)
    except ValueError as error:
        raise FluxError(Errno.EPROTO, f"{topics.KVS_LOOKUP}: val: of {key}: {error}") from None


async def commit(
    flux: FluxHandle,
    values: Mapping[str, str | None],
    namespace: str = PRIMARY,
    *,
    append: bool = False,
) -> None:
    """Write the text at each key, None to remove it, all at once; FluxError if that fails."""
    await flux.call(topics.KVS_COMMIT, commit_payload(values, namespace, append=append))


def commit_payload(
    values: Mapping[str, str | None], namespace: str = PRIMARY, *, append: bool = False
) -> dict[str, Any]:
    """Return the payload of a kvs.commit; with `append` the texts go behind what is there."""
    flags = APPEND if append else 0
    ops = [
        {"key": key, "flags": flags, "dirent": None if text is None else treeobj(text)}
        for key, text in values.items()
    ]
    return {"namespace": namespace, "flags": 0, "ops": ops}


def treeobj(text: str) -> dict[str, Any]:
    """Return the treeobj of a value."""
    return {"ver": 1, "type": "val", "data": base64.b64encode(text.encode()).decode()}


def text_of(value: Any) -> str:
    """Return the text in the treeobj of a value. ValueError says what came instead."""
    match value:
        case {"type": "val", "data": str(data)}:
            try:
                return base64.b64decode(data, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError) as error:
                raise ValueError(f"expected text in base64: {error}") from None
        case {"type": kind}:
            raise ValueError(f"expected a treeobj of type val, got {kind!r}")
    raise ValueError(f"expected a treeobj, got {type(value).__name__}")
