"""The characters that a text may have: UTF-8 in all that is sent and stored; names of properties.

Words, names of files and variables are bytes. Python reads those that are no UTF-8 as lone
surrogates (PEP 383), and gives them back to the system as they came; a message cannot have them.
"""

from __future__ import annotations

import re
from typing import Final

from flux_trio.formats.errors import FormatError, Words
from flux_trio.formats.printable import printable

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ILLEGAL: Final = re.compile("[!&'\"^`|()\ud800-\udfff]")


def is_utf8(text: str) -> bool:
    """Return whether `text` has no lone surrogate."""
    return _SURROGATE.search(text) is None


def check_utf8(text: str, where: str) -> None:
    """Raise a FormatError that names the text `where` if it is not UTF-8."""
    if not is_utf8(text):
        raise FormatError("text in UTF-8", Words(f"'{printable(text)}'"), where)


def check_property_name(name: str) -> None:
    """Raise FormatError unless `name` is a valid name of a property (RFC 20, RFC 31).

    `@` is an ordinary character here: a suffix after it is for the scheduler, and the whole literal
    name applies (RFC 20, `properties`).
    """
    if not name or _ILLEGAL.search(name):
        raise FormatError("a property name in UTF-8 without any of ! & ' \" ^ ` | ( )", name)
