"""Makes text from other users safe to show on one line of a log, a terminal or a page.

Job names, notes, reasons and error texts come from other users. A newline in such a text forges a
line of the log, an escape sequence controls the reader's terminal, and a bidirectional control
reverses the text.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Final

_BYTES: Final = range(0xDC80, 0xDD00)  # for the bytes 0x80 to 0xff (PEP 383)
_SPACES: Final = "Zs"  # Python calls all of them except U+0020 unprintable


def printable(text: str, keep: str = "") -> str:
    r"""Return `text` with each unprintable character replaced by its escape, such as `\n`.

    Unprintable are controls, line and paragraph separators, format characters (for example
    bidirectional controls), surrogates and unassigned characters. Characters in `keep` stay. A
    backslash is not escaped, so the result cannot be converted back. A byte that was not UTF-8,
    which Python reads as a surrogate, is shown as a byte: `\xff`.
    """
    if text.isprintable():
        return text
    return "".join([_shown(each, keep) for each in text])


def shortened(text: str, chars_max: int) -> str:
    """Return `text`, cut after `chars_max` characters: enough for a reader to recognise it."""
    return text if len(text) <= chars_max else f"{text[:chars_max]}..."


def printable_json(text: str) -> str:
    r"""Return JSON text with the same value and without unprintable characters.

    JSON itself escapes only U+0000 to U+001F, but U+009B begins an escape sequence like ESC [ does.
    Newlines and tabs between values stay.
    """
    if text.isprintable():
        return text
    return "".join(
        [each if _shown(each, "\n\t") == each else json.dumps(each)[1:-1] for each in text]
    )


def _shown(character: str, keep: str) -> str:
    if character.isprintable() or character in keep:
        return character
    if unicodedata.category(character) == _SPACES:
        return character
    if ord(character) in _BYTES:
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")
