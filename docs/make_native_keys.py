"""The tables of the page *What each key does*; see `make_samples`."""

from __future__ import annotations

import inspect
import io
import re
import tokenize
from typing import Any

import msgspec

from flux_trio.broker.native_keys import ASKED, LEFT_OUT, AnyKeys, NoKeys

_FIELD = re.compile(r"    (\w+):")


def tables() -> dict[str, str]:
    """Return the table of keys, and that of what is left out."""
    return {"keys": _keys(), "left-out": _left_out()}


def _keys() -> str:
    rows = ["| request | key | default | what it does |", "|---|---|---|---|"]
    for topic, shape in sorted(ASKED.items()):
        if shape is NoKeys or shape is AnyKeys:
            what = "keys have no meaning" if shape is NoKeys else "its keys are its content"
            rows.append(f"| `{topic}` | | | {what} |")
            continue
        meanings = meanings_of(shape)
        for index, field in enumerate(msgspec.structs.fields(shape)):
            first = f"`{topic}`" if index == 0 else ""
            what = meanings[field.encode_name]
            rows.append(f"| {first} | `{field.encode_name}` | {_default(field)} | {what} |")
    return "\n".join(rows)


def _left_out() -> str:
    rows = ["| request | why it is answered with ENOSYS |", "|---|---|"]
    return "\n".join(rows + [f"| `{topic}` | {why} |" for topic, why in sorted(LEFT_OUT.items())])


def meanings_of(shape: type[msgspec.Struct]) -> dict[str, str]:
    """Return what the comment behind each field of a request says, or the comment above it."""
    meanings, above = {}, ""
    lines: dict[int, str] = {}
    source = inspect.getsource(shape)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0]] = token.string.removeprefix("#").strip()
    for number, line in enumerate(source.splitlines(), 1):
        if match := _FIELD.match(line):
            meanings[match[1]] = lines.get(number, above)
        above = lines.get(number, "") if line.strip().startswith("#") else ""
    return {key: text.replace("|", "\\|") for key, text in meanings.items()}


def _default(field: Any) -> str:
    if field.required:
        return "required"
    if field.default is msgspec.NODEFAULT or field.default is msgspec.UNSET:
        return ""
    return "" if field.default in (None, "") else f"`{field.default!r}`"
