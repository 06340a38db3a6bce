"""Mistakes to plant in the programs of docs/howto/any-language; `mistakes` has those of each.

A file there has `@ GROUP: NAME -> CLAUSE` for each, then the lines of the program that are right
(-) and those that stand in their place (+). Those that are not (seen) are blind: somebody has
thought of them with the page and the RFCs alone, before he knew what an exercise does.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

DOUBLE: Final = "invariant.no-double-allocation"
_FILES: Final = Path(__file__).with_name("mistakes")
_HEAD: Final = re.compile(
    r"@ (?P<group>[^:]+): (?P<name>.+) -> (?P<clause>\S+)(?P<seen> \(seen\))?"
)


class Row(NamedTuple):
    """A mistake: its class and name, the lines in the source, and what stands there instead."""

    group: str
    name: str
    right: str
    wrong: str
    clause: str
    is_blind: bool


def rows(program: str) -> list[Row]:
    """Return the mistakes to plant in a program, by the name of its file."""
    text = (_FILES / f"{program}.txt").read_text(encoding="utf-8")
    return [_row(each) for each in text.split("\n\n")[1:]]


def _row(text: str) -> Row:
    head, *lines = text.splitlines()
    found = _HEAD.fullmatch(head)
    assert found is not None, head
    assert {line[0] for line in lines} <= {"-", "+"}, head
    right, wrong = ("".join(f"{e[1:]}\n" for e in lines if e[0] == sign) for sign in "-+")
    return Row(found["group"], found["name"], right, wrong, found["clause"], not found["seen"])
