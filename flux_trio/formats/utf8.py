"""Text that can be sent and stored: UTF-8 in messages, jobspecs and eventlogs.

Words, names of files and variables are bytes. Python reads those that are no UTF-8 as lone
surrogates (PEP 383), and gives them back to the system as they came; a message cannot have them.
"""

from __future__ import annotations

import re
from typing import Final

from flux_trio.formats.errors import FormatError, Words
from flux_trio.formats.printable import printable

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def is_utf8(text: str) -> bool:
    """Return whether `text` has no lone surrogate."""
    return _SURROGATE.search(text) is None


def check_utf8(text: str, where: str) -> None:
    """Raise a FormatError that names the text `where` if it is not UTF-8."""
    if not is_utf8(text):
        raise FormatError("text in UTF-8", Words(f"'{printable(text)}'"), where)
