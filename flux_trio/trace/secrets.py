"""Leaving secrets out of a trace: new tokens, and the environments of jobs.

An environment is `attributes.system.environment` of a jobspec (RFC 25), as JSON in a message, or as
text in a value of the kvs, also in base64 as flux-core has it; and the key of an update of it. What
is left is an empty environment, with the variables that cores go by (`READ`) and what is no
variable, which a core refuses.

A core that is given a jobspec without them does the same, but for the environments in what it does.
So a trace without them can be replayed, if environments, and the bytes of jobs in which they count,
are left out of what is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from flux_trio.formats import FormatError, treeobj
from flux_trio.messages import topics

READ: Final = ("FLUX_F58_FORCE_ASCII",)
"""Variables that stay: cores go by them."""

_KEY: Final = "environment"
_WORD: Final = _KEY.encode()
_IN_BASE64: Final = (b"ZW52aXJvbm1lbn", b"Vudmlyb25tZW50", b"lbnZpcm9ubWVud")
"""What base64 has of the word, by its place in the three bytes of a group."""
_TOKEN_TOPIC: Final = topics.BROKER_TOKEN.encode()
_PARENT: Final = "system"
_UPDATED: Final = "attributes.system.environment"
_OF_PROCESS: Final = "env"  # of a process that the shell host is to start
_ERRORS: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def lines_without_secrets(lines: bytes, *, environments: bool) -> bytes:
    """Return lines of a trace without tokens, and without environments unless they are to stay."""
    if _TOKEN_TOPIC in lines:
        lines = _each_with(_TOKEN_TOPIC, lines, _without_token)
    if environments:
        return lines
    for word in (_WORD, *_IN_BASE64):
        if word in lines:
            lines = _each_with(word, lines, lambda record: _without(record, ""))
    return lines


def _each_with(word: bytes, lines: bytes, change: Callable[[Any], Any]) -> bytes:
    """Return the lines with those changed that have `word`."""
    return b"\n".join(
        _encode(change(_decode(line))) if word in line else line for line in lines.split(b"\n")
    )


def _without_token(record: Any) -> Any:
    """Return a record without the token that the broker has made."""
    message = record.get("message") or {}
    payload = message.get("payload")
    if message.get("topic") != topics.BROKER_TOKEN or not isinstance(payload, dict):
        return record
    if "token" in payload:
        record["message"] = {**message, "payload": {**payload, "token": ""}}
    return record


def action_without_environments(action: bytes) -> bytes:
    """Return an action of a core, as JSON, without the environments of jobs and processes."""
    if _has_word(action) or b'"env"' in action:
        return _encode(_without(_decode(action), "", processes=True))
    return action


def value_without_environments(value: Any) -> Any:
    """Return a value as it comes back from a trace without the environments of jobs."""
    encoded = _encode(value)
    found = _decode(encoded)
    return _without(found, "") if _has_word(encoded) else found


def _has_word(text: bytes) -> bool:
    return any(word in text for word in (_WORD, *_IN_BASE64))


def _without(value: Any, key: str, *, processes: bool = False) -> Any:
    """Return what is left of a value; `key` is that of the object in which it is."""
    if isinstance(value, dict):
        value = _value_without(value)
        return {
            name: _emptied(name, each)
            if _is_environment(name, key, processes=processes)
            else _without(each, name, processes=processes)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_without(each, key, processes=processes) for each in value]
    if isinstance(value, str) and _KEY in value:
        return _text_without(value)
    return value


def _value_without(value: dict[str, Any]) -> dict[str, Any]:
    """Return a value of flux-core's kvs without the environments in its text."""
    if treeobj.is_of_type(value, "val"):
        with suppress(FormatError):
            text = treeobj.text_of(value)
            if _KEY in text:
                return treeobj.val(_text_without(text))
    return value


def _is_environment(name: str, parent: str, *, processes: bool) -> bool:
    return (
        (name == _KEY and parent == _PARENT)
        or name.startswith(_UPDATED)
        or (processes and name == _OF_PROCESS)
    )


def _emptied(name: str, value: Any) -> Any:
    if name.startswith(f"{_UPDATED}.") and isinstance(value, str):
        return ""  # one variable
    if not isinstance(value, dict):
        return value
    return {
        name: each
        for name, each in value.items()
        if name in READ or not (each is None or isinstance(each, str))
    }


def _text_without(text: str) -> str:
    """Return what is left of a text, which may be JSON, or lines of JSON such as an eventlog."""
    try:
        found = _decode(text)
        left = _without(found, "")
        return text if left == found else _encode(left).decode()
    except _ERRORS:
        pass
    *lines, rest = text.split("\n")
    return "".join(f"{_text_without(line)}\n" for line in lines) + rest if lines else text
