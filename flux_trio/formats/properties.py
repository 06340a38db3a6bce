"""Property names: RFC 20 defines their characters, RFC 31 uses them in constraints.

`@` is an ordinary character here: a suffix after it is for the scheduler, and the whole literal
name applies (RFC 20, `properties`).
"""

from __future__ import annotations

import re

from flux_trio.formats.errors import FormatError

_ILLEGAL = re.compile("[!&'\"^`|()\ud800-\udfff]")  # lone surrogates are not UTF-8


def check_property_name(name: str) -> None:
    """Raise FormatError unless `name` is a valid property name."""
    if not name or _ILLEGAL.search(name):
        raise FormatError("a property name in UTF-8 without any of ! & ' \" ^ ` | ( )", name)
