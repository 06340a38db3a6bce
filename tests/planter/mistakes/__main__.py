"""`python -m tests.planter.mistakes`: does `flux-trio fuzz` find each planted mistake?

Each mistake is planted in a process that plays seeds and stops at the first broken property.
Findings are kept in .mutants/: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from tests.planter.findings import KEPT
from tests.planter.mistakes.families import (
    MISTAKES,
    NEEDS,
    TRIED,
    code_now,
    found_by_fuzz,
    program_commit,
)
from tests.planter.mistakes.forking import Forks
from tests.planter.mistakes.page import PAGE, page
from tests.planter.mistakes.surveying import Survey, survey
from tests.planter.mistakes.trying import Target, Trial
from tests.planter.mistakes.worlds import Worlds

SEEDS: Final = {MISTAKES: 1000, NEEDS: 300}
"""At most so many seeds for each mistake."""


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    begin = time.monotonic()
    chosen = [each for each in TRIED[asked.family]() if not asked.only or each.name in asked.only]
    if not chosen:
        sys.exit(f"no mutant {' '.join(asked.only)} in {asked.family}")
    if not asked.report:
        say = partial(print, flush=True)
        seeds = asked.seeds or SEEDS[asked.family]
        known = _surveys(chosen, seeds, say, asked.processes)
        findings = found_by_fuzz(asked.family)
        unsound = {worlds: each.unsound for worlds, each in known.items()}
        with closing(Forks()) as forks:
            Trial(findings, say, seeds, asked.processes, unsound, forks=forks).run(chosen)
        print(f"this run: {(time.monotonic() - begin) / 60:.1f} min")
    found = {family: found_by_fuzz(family) for family in TRIED}
    targets = {family: [each.name for each in all_()] for family, all_ in TRIED.items()}
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    text, summary, is_well = page(targets, found, before, program_commit())
    if not asked.only:
        PAGE.write_text(text, encoding="utf-8")
    print(summary)
    if asked.only or asked.family == NEEDS:  # the page's bound is for a whole run of the mistakes
        latest = [found[asked.family].latest(each.name) for each in chosen]
        is_to_be_found = asked.family != NEEDS
        is_well = all(each and bool(each.by) == is_to_be_found for each in latest)
    return 0 if is_well else 1


def _surveys(
    chosen: Sequence[Target], seeds: int, say: Callable[[str], None], processes: int
) -> dict[Worlds, Survey]:
    """Return what the seeds say without a mutant, by the worlds that are played."""
    wanted: dict[Worlds, int] = {}
    for each in chosen:
        most = seeds if each.seeds_max is None else min(seeds, each.seeds_max)
        wanted[each.worlds] = max(most, wanted.get(each.worlds, 0))
    with ThreadPoolExecutor(processes) as pool:
        found = pool.map(lambda each: survey(_kept(each), wanted[each], say, each), wanted)
        return dict(zip(wanted, found, strict=True))


def _kept(worlds: Worlds) -> Path:
    words = ("reached", code_now(), worlds.name)
    return KEPT / "fuzz" / f"{'-'.join(each for each in words if each)}.json"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.planter.mistakes", description=__doc__)
    add = parser.add_argument
    add("family", nargs="?", default=MISTAKES, choices=TRIED)
    add("--only", nargs="+", default=[], metavar="MUTANT", help="these alone")
    add("--seeds", type=int, help=f"at most so many for each mutant, else {SEEDS}")
    add("--processes", type=int, default=2)
    add("--report", action="store_true", help="run nothing, write what was found")
    return parser


if __name__ == "__main__":
    sys.exit(main())
