"""A record as one line of text: parties, type and topic, and short values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from flux_trio.formats.spelling import spelled, spelled_id
from flux_trio.messages import Control, Errno, Event, Message, Request, Response, service_of
from flux_trio.trace import Kind, Record

_OF_JOBS: Final = ("allocated", "events", "ids", "jobs")
"""Keys whose lists have ids of jobs."""

VALUE_CHARS_MAX: Final = 40
"""A longer value is cut: nobody reads a jobspec or R in one line."""


def arrow(record: Record) -> str:
    """Return `sender -> receiver` for a send, `receiver <- sender` for a receipt.

    For a record without a message, return the party.
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
    """Return the sender of a received message, or "" if unknown; for a response, its service."""
    message = record.message
    if record.peer or message is None:
        return record.peer
    if isinstance(message, Response):
        return service_of(message.topic)
    return message.sender if isinstance(message, Request) else ""


def content(record: Record) -> str:
    """Return the headline and the values of a record."""
    if record.message is not None:
        return f"{headline(record)} {_values(_payload(record.message))}".rstrip()
    data = record.data or {}
    shown = data.get("context") if record.kind == Kind.EVENT else data
    return f"{headline(record)} {_values(shown if isinstance(shown, dict) else {})}".rstrip()


def headline(record: Record) -> str:
    """Return type and topic of a message, or the name of another record, without values."""
    message, data = record.message, record.data or {}
    if isinstance(message, Response):
        return f"response {message.topic}{_errnum(message)}{_text(message)}"
    if isinstance(message, (Request, Event)):
        return f"{type(message).__name__.lower()} {message.topic}"
    if isinstance(message, Control):
        return f"control {message.type} {message.status}"
    if record.kind == Kind.EVENT:
        return spelled(f"event {data.get('name')} of job {data.get('id')}")
    return f"{record.kind}"


def tell(record: Record, t_zero: float) -> str:
    """Return the whole line of a record; its time is in seconds after `t_zero`."""
    return f"{record.n:>7}  {record.t - t_zero:+10.4f}  {arrow(record)}: {content(record)}"


def _payload(message: Message) -> dict[str, Any]:
    payload = getattr(message, "payload", None)
    return payload if isinstance(payload, dict) else {}


def _values(found: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={_value_of(key, value)}" for key, value in found.items())


def _value_of(key: str, value: Any) -> str:
    if key == "id" and type(value) is int:
        return spelled_id(value)
    if key in _OF_JOBS and isinstance(value, list):
        value = [_with_id(each) for each in value]
    return _value(value)


def _with_id(value: Any) -> Any:
    """Return an entry of a list of jobs with its id spelled: the id, or a list that begins so."""
    if isinstance(value, list) and value:
        return [_with_id(value[0]), *value[1:]]
    return spelled_id(value) if type(value) is int else value


def _value(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return _short(value)
    text = msgspec.json.encode(value).decode()
    if len(text) <= VALUE_CHARS_MAX:
        return text
    if isinstance(value, dict | list):
        return "{...}" if isinstance(value, dict) else "[...]"
    return f"{text[: VALUE_CHARS_MAX - 3]}..."


def _short(number: float) -> str:
    """Return a time to a microsecond, a small number with three digits that are not 0."""
    if number and abs(number) < 1:
        return format(Decimal(f"{number:.3g}"), "f")
    return str(round(number, 6))


def _errnum(response: Response) -> str:
    if not response.errnum:
        return ""
    try:
        return f" {Errno(response.errnum).name}"
    except ValueError:
        return f" errno {response.errnum}"


def _text(response: Response) -> str:
    return f' "{response.error_text}"' if response.error_text else ""
