"""How a payload is written and read: a `Codec` is the two functions for one kind of payload.

A payload that differs between editions only by keys is one type here; the edition that lacks a key
neither writes nor reads it, and the field keeps its default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from flux_trio.formats import FormatError, ResourceSet
from flux_trio.messages import Errno, Event, FluxError, Payload, Request, Response, expect_payload

Carrier: TypeAlias = Request | Response | Event
T = TypeVar("T")
StructT = TypeVar("StructT", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """`read` raises FluxError(EPROTO) or FormatError: the key, what was expected, what came."""

    write: Callable[[T], Payload]
    read: Callable[[Carrier], T]


def codec(shape: type[StructT], *, without: frozenset[str] = frozenset()) -> Codec[StructT]:
    """A struct whose fields are the keys; a field that is None is a key that is absent.

    `without` are the keys that the edition does not have.
    """

    def read(message: Carrier) -> StructT:
        held = message.payload if isinstance(message.payload, dict) else {}
        if without.isdisjoint(held):
            return expect_payload(message, shape)
        return convert({k: v for k, v in held.items() if k not in without}, shape, message)

    return Codec(_writer(shape, without), read)


def _writer(shape: type[StructT], without: frozenset[str]) -> Callable[[StructT], Payload]:
    fields = msgspec.structs.fields(shape)
    renamed = [(f.name, f.encode_name) for f in fields if f.name != f.encode_name]
    absent = [f.encode_name for f in fields if f.encode_name in without]
    optional = [f.encode_name for f in fields if not f.required and f.encode_name not in without]
    if not (renamed or absent or optional):
        return msgspec.structs.asdict

    def write(value: StructT) -> Payload:
        held = msgspec.structs.asdict(value)
        for name, key in renamed:
            held[key] = held.pop(name)
        for key in absent:
            del held[key]
        for key in optional:
            if held[key] is None:
                del held[key]
        return held or None

    return write


def read_r(message: Carrier, value: dict[str, Any] | None) -> ResourceSet:
    """The R of a payload that must have one. FluxError(EPROTO)."""
    if value is None:
        raise FluxError(
            Errno.EPROTO, f"{message.topic}: payload: Object missing required field `R`"
        )
    try:
        return ResourceSet.parse(value, "R")
    except FormatError as error:
        raise FluxError(Errno.EPROTO, f"{message.topic}: payload: {error}") from None


def convert(value: Any, shape: type[T], message: Carrier, where: str = "payload") -> T:
    """A part of the payload of `message` as a `shape`. FluxError(EPROTO), naming `where`."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise FluxError(Errno.EPROTO, f"{message.topic}: {where}: {error}") from None
