"""Configurations that a test parses."""

from __future__ import annotations

from flux_trio.config import parse_config
from flux_trio.formats import FormatError


def refusal_of(text: str) -> str | None:
    """Why a configuration is refused, None if it is not."""
    try:
        parse_config(text)
    except FormatError as error:
        return str(error)
    return None
