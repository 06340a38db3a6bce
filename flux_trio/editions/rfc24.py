"""RFC 24, Flux Job Standard I/O: the contexts of the events of an output eventlog.

Bytes are base64 in a data event if they are not UTF-8, or if JSON would need more than twice as
many bytes for them (it does for zeros).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flux_trio.messages import Level

HEADER: Final = "header"
DATA: Final = "data"
REDIRECT: Final = "redirect"
LOG: Final = "log"
STDIN: Final = "stdin"
ALL: Final = "all"  # tasks
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


class Redirect(msgspec.Struct, frozen=True):
    """A redirect event: the output of these tasks is in a file, or their input comes from it."""

    stream: str
    rank: str
    path: str


class Message(msgspec.Struct, frozen=True):
    """A log event; `level` is a syslog severity."""

    level: int
    message: str


_ESCAPED: Final = bytes(byte for byte in range(0x20) if byte not in b"\b\t\n\f\r")
_ESCAPE_BYTES: Final = 6  # \\u0000


def output(stream: str, rank: str, data: bytes) -> Data:
    """The context of a data event with these bytes."""
    text = _text_of(data)
    if text is None:
        return Data(stream, rank, base64.b64encode(data).decode(), "base64")
    return Data(stream, rank, text)


def _text_of(data: bytes) -> str | None:
    """Return the bytes as text; None if they are to be base64."""
    if _more_than_doubles(data):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _more_than_doubles(data: bytes) -> bool:
    """Return whether `data` is more than twice as long as a JSON string."""
    escaped = len(data) - len(data.translate(None, _ESCAPED))
    return escaped * (_ESCAPE_BYTES - 1) > len(data)


def header(ntasks: int, *, is_unbuffered: bool = False) -> Header:
    """The header of an output of so many tasks.

    The option `buffer` is our own: readers of standard output do not wait for whole lines.
    """
    options = {"buffer": "none"} if is_unbuffered else {}
    return Header(1, dict.fromkeys(STREAMS, "UTF-8"), dict.fromkeys(STREAMS, ntasks), options)


def is_unbuffered(context: Mapping[str, Any]) -> bool:
    """Whether the context of a header says that lines are not to be waited for."""
    options = context.get("options")
    return isinstance(options, dict) and options.get("buffer") == "none"


def input_header() -> Header:
    """The header of the log of what tasks read: all read the same, or some of it."""
    return Header(1, {STDIN: "UTF-8"}, {STDIN: 1})


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


def has_data(context: Mapping[str, Any]) -> bool:
    """Whether the context of a data event has output."""
    return "data" in context


def place_in(context: Mapping[str, Any]) -> tuple[str, str]:
    """The stream and the rank in the context of a data event; "" for what is missing."""
    return str(context.get("stream", "")), str(context.get("rank", ""))


def message_in(context: Mapping[str, Any]) -> Message:
    """The message in the context of a log event, "" when there is none."""
    level = context.get("level")
    known = level if isinstance(level, int) else int(Level.WARNING)
    return Message(known, str(context.get("message", "")))


def write(context: Header | Data | Redirect | Message) -> dict[str, Any]:
    """The context of an event, without the keys that it does not have."""
    held = msgspec.structs.asdict(context)
    return {key: value for key, value in held.items() if value is not None}
