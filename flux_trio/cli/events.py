"""Events of eventlogs as text (flux-job(1), eventlog and wait-event)."""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.formats import Event, parse_event


def event_text(line: str) -> str:
    """An event as `timestamp name key=value ...`, the values as JSON; FormatError."""
    event = parse_event(line)
    context = [f" {key}={_json(value)}" for key, value in (event.context or {}).items()]
    return f"{event.timestamp:.6f} {event.name}{''.join(context)}"


def read_match(text: str) -> tuple[str, str]:
    """Key and value from KEY=VALUE; ValueError."""
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError("must specify a context test as key=value")
    return key, value


def matches(event: Event, name: str, match: tuple[str, str] | None) -> bool:
    """Whether the event has the name and, with `match`, that value: as JSON, or a plain string."""
    if event.name != name:
        return False
    if match is None:
        return True
    key, wanted = match
    context = event.context or {}
    return key in context and wanted in (_json(context[key]), context[key])


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
