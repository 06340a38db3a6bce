"""Escape foreign text for a page: markup and control characters do not reach the browser."""

from __future__ import annotations

from xml.sax import saxutils

from flux_trio.formats import printable

_LINES = "\n\t"


def escape(text: str) -> str:
    """Return `text` as the content of an element; it may have several lines."""
    return saxutils.escape(printable(text, keep=_LINES))


def quoteattr(text: str) -> str:
    """Return `text` as the value of an attribute, with quotes."""
    return saxutils.quoteattr(printable(text, keep=_LINES))
