"""Decoding at the edge: a payload becomes a typed value once, or an error with the reason."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from flux_trio.messages.errors import Errno, FluxError
from flux_trio.messages.types import Event, Message, Request, Response

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


def payload_bytes(message: Message | None) -> int:
    """Return the size of a payload as JSON, its encoding on Flux's own wire.

    This is the cheapest measure, since C code takes it. In memory a payload is several times as
    large.
    """
    payload = getattr(message, "payload", None)
    try:
        return 0 if payload is None else len(_encode(payload))
    except (TypeError, ValueError, OverflowError, RecursionError):  # from a module in this process
        return len(repr(payload))


def expect_payload(message: Request | Response | Event, shape: type[T]) -> T:
    """Convert the payload to `shape`.

    Raises FluxError(EPROTO) that names the topic, the key, what was expected and what came.
    """
    payload = {} if message.payload is None else message.payload
    try:
        return msgspec.convert(payload, shape)
    except msgspec.ValidationError as error:
        raise FluxError(Errno.EPROTO, f"{message.topic}: payload: {error}") from None
