"""Text of others, made safe to show in one line: of a log, a terminal, a page.

Job names, notes, reasons and error texts come from other users. A newline in one forges a line of
the log, an escape sequence drives the reader's terminal, a bidirectional control turns text around.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Final

_SPACES: Final = "Zs"  # of any width; Python counts all but U+0020 as unprintable


def printable(text: str, keep: str = "") -> str:
    r"""`text` with each character that is not printable written as its escape, such as `\n`.

    These are controls, line and paragraph separators, format characters (bidirectional controls
    among them), surrogates, and what has no meaning. Characters in `keep` stay. A backslash stays
    what it is: the result is for people, and cannot be turned back.
    """
    if text.isprintable():
        return text
    return "".join([_shown(each, keep) for each in text])


def shortened(text: str, chars_max: int) -> str:
    """`text`, or its beginning: what others have sent is for people to recognise, not to keep."""
    return text if len(text) <= chars_max else f"{text[:chars_max]}..."


def printable_json(text: str) -> str:
    r"""JSON text with the same value and nothing in it that is not printable.

    JSON escapes U+0000 to U+001F alone. U+009B begins an escape sequence as well as ESC [ does.
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
    return character.encode("unicode_escape").decode("ascii")
