"""Decoding at the edge: a payload becomes a typed value once, or an error that says why not."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from flux_trio.messages.errors import Errno, FluxError
from flux_trio.messages.types import Event, Message, Request, Response

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


def payload_bytes(message: Message | None) -> int:
    """How large a payload is: its bytes as JSON, which it also is on Flux's own wire.

    The cheapest measure there is, since C takes it; in memory a payload is a few times as large.
    """
    payload = getattr(message, "payload", None)
    try:
        return 0 if payload is None else len(_encode(payload))
    except (TypeError, ValueError, OverflowError, RecursionError):  # of a module in this process
        return len(repr(payload))


def expect_payload(message: Request | Response | Event, shape: type[T]) -> T:
    """The payload as a `shape`.

    Raises FluxError(EPROTO) that names the topic, the key, what was expected and what came.
    """
    payload = {} if message.payload is None else message.payload
    try:
        return msgspec.convert(payload, shape)
    except msgspec.ValidationError as error:
        raise FluxError(Errno.EPROTO, f"{message.topic}: payload: {error}") from None
