"""RFC 18 eventlogs: JSON Lines, one event per line, every line ended by a newline.

RFC 21 defines the events of a job. Keys beyond the RFC's three are ignored, since no sentence
forbids them. Timestamps may descend, since several writers may append.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from flux_trio.formats.errors import FormatError, Words
from flux_trio.formats.meanings import Stamp


class Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One event. `timestamp` is in seconds since the Unix epoch and above 0."""

    timestamp: Annotated[Stamp, msgspec.Meta(gt=0)]
    name: str
    context: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(Event).decode
_decode_lines = msgspec.json.Decoder(Event).decode_lines
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_encode_lines = msgspec.json.Encoder().encode_lines


def parse_event(line: str) -> Event:
    """Parse one line, with or without its newline; FormatError names the key."""
    text = line.removesuffix("\n")
    if "\n" in text:  # 18.format.2
        raise FormatError("an event on one line", line)
    try:
        event = _decode(text)
    except msgspec.MsgspecError as error:
        raise FormatError.of_msgspec(error) from None
    except (RecursionError, UnicodeError):  # nested too deeply, or lone surrogates
        raise FormatError("an event that JSON can carry", line) from None
    if event.context is None and '"context"' in text and "context" in _decode_object(text):
        raise FormatError("an object (or leave out the key)", Words("null"), "context")
    return event


def parse_eventlog(text: str) -> list[Event]:
    """Return the events in order, [] for an empty text; FormatError names the line, from 1."""
    return _plain_events(text) or _events(text)


def _plain_events(text: str) -> list[Event]:
    """Read an eventlog at once; [] for one that has to be looked at line by line.

    It has one event on each line if there are as many newlines as events, and each is between two
    objects or at the end.
    """
    try:
        events = _decode_lines(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return []
    count = len(events)
    if not (text.count("\n") == count == text.count("}\n{") + text.endswith("}\n")):
        return []
    ncontexts = sum([event.context is not None for event in events])
    return events if text.count('"context"') == ncontexts else []


def _events(text: str) -> list[Event]:
    lines = text.split("\n")
    if lines.pop():
        raise FormatError("a newline at the end", text[-40:], f"line {len(lines) + 1}")
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            events.append(parse_event(line))
        except FormatError as error:
            raise error.at(f"line {number}") from None
    return events


def format_event(event: Event) -> str:
    """Return one line of JSON with its newline; FormatError for an invalid time."""
    return format_eventlog([event])


def format_eventlog(events: Sequence[Event]) -> str:
    """Return the events as complete lines; FormatError for an invalid time, or without events.

    RFC 18: an eventlog is never created empty, and an append has at least one event.
    """
    if not events:
        raise FormatError("one event or more", Words("none"))
    for event in events:
        if not 0 < event.timestamp < math.inf:
            raise FormatError("a number above 0", event.timestamp, "timestamp")
    return _encode_lines(events).decode()
