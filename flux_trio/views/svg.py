"""Markup as text: elements, foreign text in them, and one style for light and dark pages.

Foreign text is escaped: its markup and its control characters do not reach the browser.

A picture has its own background and follows the reader's preference, so it is readable wherever it
is embedded. The colours are those of Okabe and Ito, which colour-blind readers can distinguish.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from xml.sax import saxutils

import msgspec

from flux_trio.formats import printable

# --- foreign text


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


# --- pages


def page(title: str, style: str, body: Iterable[str], *head: str) -> str:
    """Return a page of HTML; `head` are further elements of its head."""
    tags = [
        '<meta charset="utf-8"/>',
        *head,
        '<meta name="viewport" content="width=device-width"/>',
        element("title", escape(title)),
        f"<style>{style}</style>",
    ]
    html = element("html", element("head", *tags), element("body", "\n".join(body)), lang="en")
    return f"<!DOCTYPE html>\n{html}\n"


def table_rows(rows: Iterable[Iterable[str]], cell: str = "td") -> list[str]:
    """Return the rows of a table; what is in a cell is markup."""
    return [element("tr", *(element(cell, each) for each in row)) for row in rows]


# --- elements


# Text is measured without a font: this is the average width of a character of a sans serif.
CHAR_PX: Final = 6.6

STYLE: Final = """
svg { background: #ffffff; }
text { font: 12px "DejaVu Sans", Verdana, sans-serif; fill: #24292f; }
.title { font-size: 15px; font-weight: bold; }
.quiet { font-size: 10.5px; fill: #57606a; }
.strong { font-weight: bold; }
.page { fill: #ffffff; }
.box { fill: #eef4fb; stroke: #0072b2; stroke-width: 1.5; }
.grid { fill: none; stroke: #d8dee4; }
.arrow { fill: none; stroke: #57606a; stroke-width: 1.3; }
.head { fill: #57606a; }
@media (prefers-color-scheme: dark) {
svg { background: #161b22; }
text { fill: #e6edf3; }
.quiet { fill: #9ea7b3; }
.page { fill: #161b22; }
.box { fill: #1b2a3d; stroke: #56b4e9; }
.grid { stroke: #30363d; }
.arrow { stroke: #9ea7b3; }
.head { fill: #9ea7b3; }
}
"""


def element(tag: str, *children: str, **attributes: str | float) -> str:
    """Return an element; `class_` is the attribute class, `text_anchor` is text-anchor."""
    pairs = [f" {_name(key)}={quoteattr(number(value))}" for key, value in attributes.items()]
    opening = f"<{tag}{''.join(pairs)}"
    return f"{opening}>{''.join(children)}</{tag}>" if children else f"{opening}/>"


def text(x: float, y: float, content: str, **attributes: str | float) -> str:
    """Return a line of text; its baseline starts at (x, y) unless `text_anchor` is given."""
    return element("text", escape(content), x=x, y=y, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path(points: Iterable[tuple[float, float]], class_: str, *, closed: bool = False) -> str:
    """Return straight lines from point to point."""
    d = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return element("path", d=d + "Z" * closed, class_=class_)


def document(
    width: float, height: float, label: str, body: Iterable[str], style: str = STYLE
) -> str:
    """Return a picture of `width` by `height` pixels; `label` is read by screen readers."""
    page = element("rect", width=width, height=height, class_="page")
    content = ["", element("title", escape(label)), element("style", style), page, *body, ""]
    picture = element(
        "svg",
        "\n".join(content),
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        width=width,
        height=height,
        viewBox=f"0 0 {number(width)} {number(height)}",
    )
    return picture + "\n"


def text_px(content: str) -> float:
    """Return the approximate width of a line of text, in pixels."""
    return len(content) * CHAR_PX


def number(value: str | float) -> str:
    """Return a number with at most one decimal; a string is returned as it is."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-") if key != "viewBox" else key
