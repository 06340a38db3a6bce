"""Escape foreign text for a page: markup and control characters do not reach the browser."""

from __future__ import annotations

from typing import Any, Final
from xml.sax import saxutils

import msgspec

from flux_trio.formats import printable

_LINES = "\n\t"

_IN_SCRIPT: Final = {
    b"<": b"\\u003c",  # </script> would end the element
    b">": b"\\u003e",
    b"&": b"\\u0026",
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
}


def escape(text: str) -> str:
    """Return `text` as the content of an element; it may have several lines."""
    return saxutils.escape(printable(text, keep=_LINES))


def quoteattr(text: str) -> str:
    """Return `text` as the value of an attribute, with quotes."""
    return saxutils.quoteattr(printable(text, keep=_LINES))


def script_json(value: Any) -> str:
    """Return `value` as JSON that can stand in a script element."""
    text = msgspec.json.encode(value)
    for character, escaped in _IN_SCRIPT.items():
        text = text.replace(character, escaped)
    return text.decode()
