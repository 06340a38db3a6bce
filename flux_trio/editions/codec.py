"""How a payload is written and read: a `Codec` has one function for each.

If a payload has more keys in one edition than in another, both editions have the same type. An
edition without a key neither writes nor reads it; the field then has its default.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from flux_trio.formats import FormatError, Idset, ResourceSet
from flux_trio.messages import Errno, Event, FluxError, Payload, Request, Response, expect_payload

PayloadMessage: TypeAlias = Request | Response | Event
T = TypeVar("T")
StructT = TypeVar("StructT", bound=msgspec.Struct)


class Codec(msgspec.Struct, Generic[T], frozen=True):
    """`read` raises FluxError(EPROTO) or FormatError that names key, expected and actual value."""

    write: Callable[[T], Payload]
    read: Callable[[PayloadMessage], T]


_ID_FIRST: Final = re.compile(r'\{\s*"id"\s*:\s*([0-9]{1,20})\s*[,}]', re.ASCII)


def jobid_in(request: Request) -> int:
    """Return the job id of a request that is wrong otherwise. Raises FluxError(EPROTO).

    A payload that is beyond the bounds of objects is text. flux-core writes the id first in it.
    """
    payload = request.payload
    jobid = payload.get("id") if isinstance(payload, dict) else None
    if isinstance(payload, str) and (match := _ID_FIRST.match(payload)):
        jobid = int(match[1])
    if not isinstance(jobid, int) or isinstance(jobid, bool):
        raise FluxError(Errno.EPROTO, f"{request.topic}: payload: expected an object with an id")
    return jobid


def codec(shape: type[StructT], *, without: frozenset[str] = frozenset()) -> Codec[StructT]:
    """Return the codec of a struct whose fields are the keys; a key is absent if its field is None.

    The edition does not have the keys in `without`.
    """
    if not without:
        return Codec(_writer(shape, without), partial(expect_payload, shape=shape))

    def read(message: PayloadMessage) -> StructT:
        content = message.payload if isinstance(message.payload, dict) else {}
        if without.isdisjoint(content):
            return expect_payload(message, shape)
        known = {k: v for k, v in content.items() if k not in without}
        return expect_payload(msgspec.structs.replace(message, payload=known), shape)

    return Codec(_writer(shape, without), read)


def _writer(shape: type[StructT], without: frozenset[str]) -> Callable[[StructT], Payload]:
    fields = msgspec.structs.fields(shape)
    renamed = [(f.name, f.encode_name) for f in fields if f.name != f.encode_name]
    absent = [f.encode_name for f in fields if f.encode_name in without]
    optional = [f.encode_name for f in fields if not f.required and f.encode_name not in without]
    if not (renamed or absent or optional):
        return msgspec.structs.asdict

    def write(value: StructT) -> Payload:
        content = msgspec.structs.asdict(value)
        for name, key in renamed:
            content[key] = content.pop(name)
        for key in absent:
            del content[key]
        for key in optional:
            if content[key] is None:
                del content[key]
        return content or None

    return write


def of_other_edition(message: PayloadMessage, theirs: Literal["classic", "current"]) -> FluxError:
    """Return the error for a payload that the edition `theirs` has, and not that of the reader.

    It is raised where the payload would be taken for something else. A key that only `theirs` has,
    and that says what the reader knows anyway, is passed over, as other unknown keys are.
    """
    mine = "current" if theirs == "classic" else "classic"
    text = f"expected one of edition {mine}, which is spoken here, got one of edition {theirs}"
    return FluxError(Errno.EPROTO, f"{message.topic}: payload: {text}")


def has_key(message: PayloadMessage, *keys: str) -> bool:
    """Return whether a payload has one of the keys."""
    return isinstance(message.payload, dict) and not message.payload.keys().isdisjoint(keys)


def as_payload(value: msgspec.Struct) -> dict[str, Any]:
    """Return a struct as plain data, with all structs in it."""
    payload: dict[str, Any] = msgspec.to_builtins(value)
    return payload


def read_idset(text: str, key: str) -> Idset:
    """Return the idset at `key` of a payload. Raises FormatError."""
    try:
        return Idset.parse(text)
    except FormatError as error:
        raise error.at(key) from None


def read_r(message: PayloadMessage, value: dict[str, Any] | None) -> ResourceSet:
    """Return the R of a payload of the current edition. Raises FluxError(EPROTO)."""
    if value is None:
        error = of_other_edition(message, "classic")
        raise FluxError(error.errnum, f"{error.text}: Object missing required field `R`")
    try:
        return ResourceSet.parse(value, "R", own_widths=True)
    except FormatError as error:
        raise FluxError(Errno.EPROTO, f"{message.topic}: payload: {error}") from None
