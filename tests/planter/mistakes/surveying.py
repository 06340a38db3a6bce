"""Which seeds break a property without a mistake: worlds are played once without any.

This module is the process that plays: it reads the first seed, the end and
the `Worlds` as JSON, and writes a `Survey`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from tests.planter.mistakes.processes import ask
from tests.planter.mistakes.worker import Hangs, limit_time, stop_worlds_that_hang
from tests.planter.mistakes.worlds import PLAIN, Worlds, open_worlds

PART: Final = 100
"""Seeds that a process plays; what it says is kept, then the next one begins."""


@dataclass
class Survey:
    """What the seeds from 0 to `end` say, without `end`."""

    end: int = 0
    unsound: list[int] = field(default_factory=list)
    """Seeds that break a property without a mutant: they prove nothing."""

    def add(self, other: Survey) -> None:
        """Add what later seeds say."""
        self.end = other.end
        self.unsound += other.unsound


def survey(path: Path, seeds: int, say: Callable[[str], None], worlds: Worlds = PLAIN) -> Survey:
    """Return what at least `seeds` seeds of `worlds` say; it is kept in the file `path`."""
    known = Survey(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Survey()
    while known.end < seeds:
        known.add(played(known.end, min(known.end + PART, seeds), worlds))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(known)), encoding="utf-8")
        say(f"without a mutant: {known.end} of {seeds} seeds {worlds.name}".rstrip())
    say(f"{len(known.unsound)} of {known.end} seeds break a property without a mutant")
    return known


def played(first: int, end: int, worlds: Worlds = PLAIN) -> Survey:
    """Play seeds in a process of its own."""
    return msgspec.convert(ask(__name__, [first, end, asdict(worlds)]), Survey)


def _main() -> None:
    first, end, worlds = msgspec.convert(json.load(sys.stdin), tuple[int, int, Worlds])
    stop_worlds_that_hang()
    found = Survey(end)
    with open_worlds(worlds, {}) as play:
        for seed in range(first, end):
            limit_time()
            try:
                is_sound = not play(seed).broken
            except Hangs:
                is_sound = False
            if not is_sound:
                found.unsound.append(seed)
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    _main()
