"""Decoding at the edge: a payload becomes a typed value once, or an error that says why not."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from flux_trio.messages.errors import Errno, FluxError
from flux_trio.messages.types import Event, Request, Response

T = TypeVar("T")


def expect_payload(message: Request | Response | Event, shape: type[T]) -> T:
    """The payload as a `shape`.

    Raises FluxError(EPROTO) that names the topic, the key, what was expected and what came.
    """
    payload = {} if message.payload is None else message.payload
    try:
        return msgspec.convert(payload, shape)
    except msgspec.ValidationError as error:
        raise FluxError(Errno.EPROTO, f"{message.topic}: payload: {error}") from None
