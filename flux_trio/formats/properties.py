"""Names of properties: RFC 20 says which characters they may hold, RFC 31 asks for them.

The `@` is an ordinary character here: its suffix is a scheduler's own matter, and the literal name
applies as it stands (RFC 20, `properties`).
"""

from __future__ import annotations

import re

from flux_trio.formats.errors import FormatError

_ILLEGAL = re.compile("[!&'\"^`|()\ud800-\udfff]")  # lone surrogates are not UTF-8


def check_property_name(name: str) -> None:
    """FormatError unless `name` may be the name of a property."""
    if not name or _ILLEGAL.search(name):
        raise FormatError("a property name in UTF-8 without any of ! & ' \" ^ ` | ( )", name)
