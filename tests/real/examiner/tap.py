"""Reads the results that a sharness script prints (Test Anything Protocol)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal

Outcome = Literal["ok", "not ok", "skip"]

_RESULT: Final = re.compile(r"(ok|not ok) \d+ (?:- (?P<name>.*)|# skip (?P<skipped>.*))")
_TODO: Final = re.compile(r" # TODO known breakage( vanished)?$")
_MISSING: Final = re.compile(r" \(missing [^()]*\)$")


def read(lines: Iterable[str]) -> dict[str, Outcome]:
    """Return the outcome of each case by its name, in their order.

    The second case with the same name is `NAME (2)`. A known breakage is a case that is skipped.
    A line that is no result is left out.
    """
    found: dict[str, Outcome] = {}
    seen: Counter[str] = Counter()
    for line in lines:
        if (match := _RESULT.fullmatch(line.rstrip())) is None:
            continue
        name, todo = _TODO.subn("", match["name"] or "")
        if match["skipped"] is not None:
            name = _MISSING.sub("", match["skipped"])
        seen[name] += 1
        if seen[name] > 1:
            name = f"{name} ({seen[name]})"
        if todo or match["skipped"] is not None:
            found[name] = "skip"
        else:
            found[name] = "ok" if match[1] == "ok" else "not ok"
    return found
