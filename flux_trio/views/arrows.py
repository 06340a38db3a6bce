"""A record as one line of text: who to whom, what, and the keys that matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flux_trio.messages import (
    Control,
    Errno,
    Event,
    Message,
    Request,
    Response,
    service_of,
)
from flux_trio.trace import Kind, Record

VALUE_CHARS_MAX: Final = 40
"""A value that takes more is left out: jobspecs and R are not read in a line."""


def arrow(record: Record) -> str:
    """`sender -> receiver` where the message was sent, `receiver <- sender` where it was taken up.

    For what is no message, the party alone.
    """
    match record.kind:
        case Kind.SEND:
            return f"{record.party} -> {record.peer or '*'}"
        case Kind.RECV:
            return f"{record.party} <- {sender_of(record) or '*'}"
        case Kind.DROP:
            return f"{record.party} -x"
    return record.party


def sender_of(record: Record) -> str:
    """Who sent what the record's party took up, as far as it tells: a service for its holder."""
    message = record.message
    if record.peer or message is None:
        return record.peer
    if isinstance(message, Response):
        return service_of(message.topic)
    return message.sender if isinstance(message, Request) else ""


def content(record: Record) -> str:
    """Type and topic, or name, and what is in it."""
    if record.message is not None:
        return f"{headline(record)} {_values(_payload(record.message))}".rstrip()
    data = record.data or {}
    shown = data.get("context", {}) if record.kind == Kind.EVENT else data
    return f"{headline(record)} {_values(shown)}".rstrip()


def headline(record: Record) -> str:
    """What the record is, without its values."""
    message, data = record.message, record.data or {}
    if isinstance(message, Response):
        return f"response {message.topic}{_errnum(message)}{_text(message)}"
    if isinstance(message, (Request, Event)):
        return f"{type(message).__name__.lower()} {message.topic}"
    if isinstance(message, Control):
        return f"control {message.type} {message.status}"
    if record.kind == Kind.EVENT:
        return f"event {data.get('name')} of job {data.get('id')}"
    return f"{record.kind}"


def tell(record: Record, t_zero: float) -> str:
    """The whole line; times are seconds after `t_zero`."""
    return f"{record.n:>7}  {record.t - t_zero:+10.4f}  {arrow(record)}: {content(record)}"


def _payload(message: Message) -> dict[str, Any]:
    payload = getattr(message, "payload", None)
    return payload if isinstance(payload, dict) else {}


def _values(found: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={_value(value)}" for key, value in found.items())


def _value(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    if len(text) <= VALUE_CHARS_MAX:
        return text
    if isinstance(value, dict | list):
        return "{...}" if isinstance(value, dict) else "[...]"
    return f"{text[: VALUE_CHARS_MAX - 3]}..."


def _errnum(response: Response) -> str:
    if not response.errnum:
        return ""
    try:
        return f" {Errno(response.errnum).name}"
    except ValueError:
        return f" errno {response.errnum}"


def _text(response: Response) -> str:
    return f' "{response.error_text}"' if response.error_text else ""
