"""`python -m tests.mistakes`: does `flux-trio fuzz` find each planted mistake?

Each mutant is planted in a process that plays up to 1,000 seeds and stops at the first broken
property. Findings are kept in .mutants/: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.mistakes.families import FAMILIES, code_now, found_by_fuzz
from tests.mistakes.page import PAGE, page
from tests.mistakes.trying import Trial, unsound_seeds
from tests.planter.findings import KEPT

SEEDS: Final = 1000


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    begin = time.monotonic()
    chosen = [each for each in FAMILIES[asked.family]() if asked.only in ("", each.name)]
    if not chosen:
        sys.exit(f"no mutant {asked.only} in {asked.family}")
    if not asked.report:
        say = partial(print, flush=True)
        unsound = _unsound(asked.seeds, say)
        Trial(found_by_fuzz(asked.family), say, asked.seeds, asked.processes, unsound).run(chosen)
        print(f"this run: {(time.monotonic() - begin) / 60:.1f} min")
    found = {family: found_by_fuzz(family) for family in FAMILIES}
    targets = {family: [each.name for each in all_()] for family, all_ in FAMILIES.items()}
    text, summary, is_well = page(targets, found)
    if not asked.only:
        PAGE.write_text(text, encoding="utf-8")
    print(summary)
    return 0 if is_well else 1


def _unsound(seeds: int, say: Callable[[str], None]) -> tuple[int, ...]:
    """Return the seeds that break a property without a mutant; they are kept, too."""
    path = KEPT / "fuzz" / f"unsound-{code_now()}.json"
    end, found = json.loads(path.read_text()) if path.exists() else (0, [])
    if end < seeds:
        found += unsound_seeds(end, seeds)
        end = seeds
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([end, found]))
    say(f"{len(found)} of {end} seeds break a property without a mutant")
    return tuple(found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.mistakes", description=__doc__)
    add = parser.add_argument
    add("family", nargs="?", default="mistakes", choices=FAMILIES)
    add("--only", default="", metavar="MUTANT", help="this one alone")
    add("--seeds", type=int, default=SEEDS, help="at most so many for each mutant")
    add("--processes", type=int, default=2)
    add("--report", action="store_true", help="run nothing, write what was found")
    return parser


if __name__ == "__main__":
    sys.exit(main())
