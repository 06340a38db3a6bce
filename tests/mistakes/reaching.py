"""Which seeds reach which mutants: worlds are played once without any.

A world that does not reach the place of a mutant is the same with it and without it, so such a seed
is not played with the mutant. `python -m tests.mistakes.reaching` is the process that plays: it
reads the first seed, the end and the `Worlds` as JSON, and writes a `Survey`.
"""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from tests.mistakes import actions
from tests.mistakes.processes import ask
from tests.mistakes.worker import Hangs, limit_time, plant, stop_worlds_that_hang
from tests.mistakes.worlds import PLAIN, Worlds, open_worlds

PART: Final = 100
"""Seeds that a process plays; what it says is kept, then the next one begins."""


@dataclass
class Survey:
    """What the seeds from 0 to `end` say, without `end`."""

    end: int = 0
    unsound: list[int] = field(default_factory=list)
    """Seeds that break a property without a mutant: they prove nothing."""
    reached: dict[str, list[int]] = field(default_factory=dict)
    """By place of a mutant: the seeds whose worlds reach it."""

    def add(self, other: Survey) -> None:
        """Add what later seeds say."""
        self.end = other.end
        self.unsound += other.unsound
        for place, seeds in other.reached.items():
            self.reached.setdefault(place, []).extend(seeds)


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
    places: set[str] = set()
    setattr(builtins, actions.NOTE, places.add)
    plant(actions.noting())
    stop_worlds_that_hang()
    found = Survey(end)
    with open_worlds(worlds, {}) as play:
        for seed in range(first, end):
            places.clear()
            limit_time()
            try:
                result = play(seed)
            except Hangs:
                found.unsound.append(seed)
                continue
            if result.broken:
                found.unsound.append(seed)
            for place in sorted({*places, *result.taken}):
                found.reached.setdefault(place, []).append(seed)
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    _main()
