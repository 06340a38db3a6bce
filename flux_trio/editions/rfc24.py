"""RFC 24, Flux Job Standard I/O: the contexts of the events of an output eventlog.

The responses of `job-exec.attach` are contexts of data events too. `note` in them is our own: it
tells a person something about the output, and has no data.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flux_trio.messages import Response

HEADER: Final = "header"
DATA: Final = "data"
STREAMS: Final = ("stdout", "stderr")


class Header(msgspec.Struct, frozen=True):
    """The first event: for each stream its encoding, and how many tasks write to it."""

    version: int
    encoding: dict[str, str]
    count: dict[str, int]
    options: dict[str, Any] = {}


class Data(msgspec.Struct, frozen=True):
    """Output, or the end of a stream; `rank` is a task's id, or an idset of several."""

    stream: str
    rank: str
    data: str | None = None
    encoding: str | None = None  # "base64", or absent for text
    eof: bool | None = None
    note: str | None = None


class Redirect(msgspec.Struct, frozen=True):
    """A redirect event: the output of these tasks is in a file."""

    stream: str
    rank: str
    path: str


class Message(msgspec.Struct, frozen=True):
    """A log event; `level` is a syslog severity."""

    level: int
    message: str


def header(ntasks: int) -> Header:
    """The header of an output of so many tasks."""
    return Header(1, dict.fromkeys(STREAMS, "UTF-8"), dict.fromkeys(STREAMS, ntasks))


def bytes_of(context: Mapping[str, Any]) -> bytes:
    """The data of a data event. Raises ValueError for what is no data."""
    data = context.get("data", "")
    if not isinstance(data, str):
        raise ValueError(f"data: expected text, got {type(data).__name__}")
    if context.get("encoding") != "base64":
        return data.encode()
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ValueError(f"data: expected base64: {error}") from None


def input_in(context: Mapping[str, Any]) -> tuple[bytes, bool]:
    """Data and end of file of standard input for all tasks. Raises ValueError for other input."""
    if context.get("stream", "stdin") != "stdin" or context.get("rank", "all") != "all":
        raise ValueError(
            "expected stream stdin of rank all, got "
            f"{context.get('stream')!r:.80} of rank {context.get('rank')!r:.80}"
        )
    return bytes_of(context), context.get("eof") is True


def piece_in(message: Response) -> dict[str, Any] | None:
    """The context of a data event in a response with output; None if there is none."""
    payload = message.payload
    return payload if isinstance(payload, dict) and has_data(payload) else None


def has_data(context: Mapping[str, Any]) -> bool:
    """Whether the context of a data event has output."""
    return "data" in context


def message_in(context: Mapping[str, Any]) -> str:
    """The message in the context of a log event, "" when there is none."""
    return str(context.get("message", ""))


def write(context: Header | Data | Redirect | Message) -> dict[str, Any]:
    """The context of an event, without the keys that it does not have."""
    held = msgspec.structs.asdict(context)
    return {key: value for key, value in held.items() if value is not None}
