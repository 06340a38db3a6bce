"""Treeobjs (RFC 11): what flux-core's kvs has at a key, as JSON; and bytes as text.

A value is {"ver": 1, "type": "val", "data": base64}, a directory has names and treeobjs in `data`.
Blobrefs (`valref`, `dirref`) name contents of flux-core's content store.

The kvs of this project stores text. Bytes that are no UTF-8 are stored as characters of a private
area, one for each byte (`ESCAPED`). So are the bytes of these characters themselves, so that each
text has one meaning, and an append of bytes is an append of text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Any, Final

from flux_trio.formats.errors import FormatError

ESCAPED: Final = 0xFDC00
"""The character of byte b is ESCAPED + b, from 0x80 on; Python's surrogateescape is 0xDC00 + b."""

_SURROGATES: Final = {0xDC00 + byte: ESCAPED + byte for byte in range(0x80, 0x100)}
_SURROGATES_BACK: Final = {there: here for here, there in _SURROGATES.items()}
_ESCAPES: Final = re.compile(f"[{chr(ESCAPED + 0x80)}-{chr(ESCAPED + 0xFF)}]")
HASHES: Final = ("sha1", "sha256")  # values of the attribute content.hash
_EMPTY_DIR: Final = b'{"data":{},"type":"dir","ver":1}'


def bytes_as_text(data: bytes) -> str:
    """Return the text by which the kvs stores `data`."""
    text = data.decode(errors="surrogateescape")
    if text.isascii():
        return text
    text = _ESCAPES.sub(lambda match: match[0].encode().decode("ascii", "surrogateescape"), text)
    return text.translate(_SURROGATES)


def text_as_bytes(text: str) -> bytes:
    """Return the bytes that the kvs stores as `text`."""
    if text.isascii():
        return text.encode()
    return text.translate(_SURROGATES_BACK).encode(errors="surrogateescape")


def val(text: str) -> dict[str, Any]:
    """Return the treeobj of a value that is stored as `text`."""
    data = base64.b64encode(text_as_bytes(text)).decode()
    return {"ver": 1, "type": "val", "data": data}


def directory(entries: dict[str, Any]) -> dict[str, Any]:
    """Return the treeobj of a directory with these treeobjs."""
    return {"ver": 1, "type": "dir", "data": entries}


def dirref(ref: str) -> dict[str, Any]:
    """Return the treeobj of the directory with this blobref."""
    return {"ver": 1, "type": "dirref", "data": [ref]}


def link(namespace: str) -> dict[str, Any]:
    """Return the treeobj of a link to the root of a namespace."""
    return {"ver": 1, "type": "symlink", "data": {"namespace": namespace, "target": "."}}


def kind_of(found: Any) -> str:
    """Return the type of a treeobj; "" for what is none."""
    kind = found.get("type") if isinstance(found, dict) else None
    return kind if isinstance(kind, str) else ""


def is_of_type(found: Any, kind: str) -> bool:
    return kind_of(found) == kind


def entries_of(found: Any) -> dict[str, Any] | None:
    """Return what a directory has, by name; None for any other treeobj."""
    entries = found.get("data") if is_of_type(found, "dir") else None
    return entries if isinstance(entries, dict) else None


def ref_of(found: Any) -> str | None:
    """Return the blobref of a directory that is given by it; None for any other treeobj."""
    refs = found.get("data") if is_of_type(found, "dirref") else None
    return refs[0] if isinstance(refs, list) and len(refs) == 1 else None


def linked_namespace(found: Any) -> str | None:
    """Return the namespace to whose root a link leads; None for any other treeobj."""
    data = found.get("data") if is_of_type(found, "symlink") else None
    if not isinstance(data, dict) or data.get("target") != ".":
        return None
    name = data.get("namespace")
    return name if isinstance(name, str) else None


def text_of(found: Any) -> str:
    """Return the text by which the kvs stores a value. Raises FormatError for any other treeobj."""
    data = found.get("data") if is_of_type(found, "val") else None
    if not isinstance(data, str):
        raise FormatError("a treeobj of type val", found)
    try:
        return bytes_as_text(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        raise FormatError("base64", data, "data") from None


def blobref(hash_name: str, content: bytes) -> str:
    """Return the blobref of `content`. Raises ValueError for a hash that is not in HASHES."""
    if hash_name not in HASHES:
        raise ValueError(f"content.hash: expected {' or '.join(HASHES)}, got {hash_name!r:.80}")
    return f"{hash_name}-{hashlib.new(hash_name, content).hexdigest()}"


def empty_root(hash_name: str) -> str:
    """Return the blobref of the empty directory, which each kvs has. Raises ValueError."""
    return blobref(hash_name, _EMPTY_DIR)
