"""Error texts: short ones in responses (RFC 6, Response Messages), and all of it in the log."""

from __future__ import annotations

from typing import Final

TEXT_MAX: Final = 80  # characters of an error text, less one
MORE: Final = "... (see the log)"


def brief(text: str) -> str:
    """What an error response may say of `text`: all of it, or its beginning and where the rest is.

    Whoever shortens a text writes all of it to the log (6.response.4).
    """
    if len(text) < TEXT_MAX and "\n" not in text:
        return text
    first = text.partition("\n")[0]
    return first[: TEXT_MAX - 1 - len(MORE)] + MORE
