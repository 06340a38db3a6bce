"""What is tried: the mistakes, and those that need a fault without one; and what was found."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from tests.planter.findings import KEPT, ROOT, Findings
from tests.planter.mistakes.entries import Mistake, mistakes
from tests.planter.mistakes.trying import Target
from tests.planter.mistakes.worlds import PLAIN, Worlds, is_plugin

OTHER_SEEDS: Final = 400
"""At most so many seeds of worlds that are no plain ones at depth cores: they take longer."""


def mistake_targets() -> Iterator[Target]:
    """Yield every mistake with the worlds in which its code runs."""
    for each in mistakes():
        worlds = worlds_of(each)
        seeds_max = None if worlds == PLAIN else OTHER_SEEDS
        yield Target(each.id, each.edited, worlds=worlds, seeds_max=seeds_max)


def worlds_of(mistake: Mistake) -> Worlds:
    """Return the worlds in which the edited code runs."""
    files = {each.file for each in mistake.edit}
    plugin = next((each.rpartition("/")[2] for each in files if is_plugin(each)), "")
    return Worlds(mistake.depth, plugin)


def _needs() -> Iterator[Target]:
    for each in mistakes():
        if each.needs == "fault":
            yield Target(each.id, each.edited, worlds=replace(worlds_of(each), has_faults=False))


PROGRAM: Final = ("flux_trio", "plugins")
MISTAKES: Final = "mistakes"
NEEDS: Final = "needs"
"""The mistakes that need a fault, in worlds without faults: there none may be found."""
TRIED: Final[dict[str, Callable[[], Iterator[Target]]]] = {MISTAKES: mistake_targets, NEEDS: _needs}


def found_by_fuzz(family: str) -> Findings:
    """Return what `flux-trio fuzz` has found of a family."""
    return Findings(KEPT / "fuzz" / f"{family}.jsonl", code_now())


def program_commit() -> str:
    """The last commit that changed the program, in short; "" if it has changed since."""
    changed = _git("status", "--porcelain", "--", *PROGRAM)
    return "" if changed else _git("log", "-1", "--format=%h", "--abbrev=8", "--", *PROGRAM)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def code_now() -> str:
    """A digest of the program, of what is planted, and of the worlds: findings hold for one."""
    digest = hashlib.sha256()
    worlds = [Path(__file__).with_name(name) for name in ("busy.py", "site.py", "worlds.py")]
    for path in [*(each for room in PROGRAM for each in _files(room)), *worlds]:
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    for each in mistakes():  # without its labels, which may be corrected afterwards
        digest.update(msgspec.json.encode((each.id, each.depth, each.edit)))
    return digest.hexdigest()[:16]


def _files(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))
