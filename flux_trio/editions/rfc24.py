"""RFC 24, Flux Job Standard I/O: the contexts of the events of an output eventlog.

The responses of `job-exec.attach` are contexts of data events too. `note` in them is our own: it
tells a person something about the output, and has no data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


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


class Message(msgspec.Struct, frozen=True):
    """A log event; `level` is a syslog severity."""

    level: int
    message: str


def has_data(context: Mapping[str, Any]) -> bool:
    """Whether the context of a data event has output."""
    return "data" in context


def message_in(context: Mapping[str, Any]) -> str:
    """The message in the context of a log event, "" when there is none."""
    return str(context.get("message", ""))


def write(context: Header | Data | Message) -> dict[str, Any]:
    """The context of an event, without the keys that it does not have."""
    held = msgspec.structs.asdict(context)
    return {key: value for key, value in held.items() if value is not None}
