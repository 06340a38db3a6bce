"""Mistakes to plant in the programs of docs/howto/any-language."""

from __future__ import annotations

from typing import Final, NamedTuple

DOUBLE: Final = "invariant.no-double-allocation"


class Row(NamedTuple):
    """A mistake: its class and name, the text in the source, what stands there instead."""

    group: str
    name: str
    right: str
    wrong: str
    clause: str
    is_blind: bool = True
