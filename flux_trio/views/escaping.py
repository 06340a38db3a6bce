"""Text of others in a page: neither its marks nor its controls reach the reader's browser."""

from __future__ import annotations

from xml.sax import saxutils

from flux_trio.formats import printable

_LINES = "\n\t"


def escape(text: str) -> str:
    """`text` as the content of an element; it may have several lines."""
    return saxutils.escape(printable(text, keep=_LINES))


def quoteattr(text: str) -> str:
    """`text` as the value of an attribute, with its quotes."""
    return saxutils.quoteattr(printable(text, keep=_LINES))
