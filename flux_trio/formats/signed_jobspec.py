"""RFC 15: a jobspec with the signature of its user, as J; only the mechanism `none` is read.

J is a header, the jobspec as the user wrote it, and a signature, each in base64, with dots between
them. The header has pairs of texts, each with a NUL: `version` i1, `userid` i<uid>, `mechanism`
snone. With this mechanism the signature is the word "none": who the user is follows from the
connection.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

from flux_trio.formats.errors import FormatError

_PARTS: Final = 3
_SIGNATURE: Final = "none"
_SHOWN: Final = 80


class SignedJobspec(NamedTuple):
    """The userid in the header, and the jobspec as JSON."""

    userid: int
    jobspec: bytes


def sign(userid: int, jobspec: bytes) -> str:
    """Return J of a jobspec."""
    header = f"version\0i1\0userid\0i{userid}\0mechanism\0snone\0".encode()
    parts = (header, jobspec)
    return ".".join([*(base64.b64encode(part).decode() for part in parts), _SIGNATURE])


def content(j: str) -> bytes:
    """Return the jobspec in a J that was accepted before, by whatever mechanism it is signed.

    Raises FormatError.
    """
    return _decoded(_parts(j)[1], "a jobspec")


def unwrap(j: str) -> SignedJobspec:
    """Return what J says. Raises FormatError."""
    parts = _parts(j)
    header = dict(_pairs(_decoded(parts[0], "a header")))
    mechanism = header.get("mechanism", "")
    if mechanism != "snone":
        raise FormatError("the mechanism none", mechanism.removeprefix("s"), "J")
    userid = header.get("userid", "").removeprefix("i")
    if not (userid.isascii() and userid.isdecimal()):
        raise FormatError("a userid in the header", userid, "J")
    return SignedJobspec(int(userid), _decoded(parts[1], "a jobspec"))


def _parts(j: str) -> list[str]:
    parts = j.split(".")
    if len(parts) != _PARTS:
        raise FormatError(f"{_PARTS} parts that dots separate", j[:_SHOWN], "J")
    return parts


def _pairs(header: bytes) -> list[tuple[str, str]]:
    words = header.decode(errors="replace").split("\0")
    return list(zip(words[::2], words[1::2], strict=False))


def _decoded(part: str, what: str) -> bytes:
    try:
        return base64.b64decode(part, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"{what} in base64 ({error})", part[:_SHOWN], "J") from None
