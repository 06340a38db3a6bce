"""Leaving the environments of jobs out of a trace: they have what only a job's user should see.

An environment is `attributes.system.environment` of a jobspec (RFC 25), as JSON in a message, or as
text in a value of the kvs; and the key of an update of it. What is left is an empty environment,
with the variables that cores go by (`READ`) and what is no variable, which a core refuses.

A core that is given a jobspec without them does the same, but for the environments in what it does.
So a trace without them can be replayed, if environments are left out of what is compared.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

READ: Final = ("FLUX_F58_FORCE_ASCII",)
"""Variables that stay: cores go by them."""

_KEY: Final = "environment"
_WORD: Final = _KEY.encode()
_PARENT: Final = "system"
_UPDATED: Final = "attributes.system.environment"
_OF_PROCESS: Final = "env"  # of a process that the shell host is to start
_ERRORS: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def lines_without_environments(lines: bytes) -> bytes:
    """Return lines of JSON without the environments of jobs."""
    if _WORD not in lines:
        return lines
    return b"\n".join(_line_without(line) if _WORD in line else line for line in lines.split(b"\n"))


def action_without_environments(action: bytes) -> bytes:
    """Return an action of a core, as JSON, without the environments of jobs and processes."""
    if _WORD in action or b'"env"' in action:
        return _encode(_without(_decode(action), "", processes=True))
    return action


def value_without_environments(value: Any) -> Any:
    """Return a value as it comes back from a trace without the environments of jobs."""
    encoded = _encode(value)
    found = _decode(encoded)
    return _without(found, "") if _WORD in encoded else found


def _line_without(line: bytes) -> bytes:
    return _encode(_without(_decode(line), ""))


def _without(value: Any, key: str, *, processes: bool = False) -> Any:
    """Return what is left of a value; `key` is that of the object in which it is."""
    if isinstance(value, dict):
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
