"""Plant mistakes: does `flux-trio fuzz` find them?

Each mistake is planted in a process that plays seeds and stops at the first broken property.
"""

from __future__ import annotations

import argparse
import sys
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


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, help=f"at most so many for each mutant, else {SEEDS}")


def run(asked: argparse.Namespace) -> int:
    """Play seeds with each mistake that has no finding of this code; write the page of results."""
    family: str = asked.kind
    chosen = [each for each in TRIED[family]() if not asked.only or each.name in asked.only]
    if not chosen:
        sys.exit(f"no mutant {' '.join(asked.only)} in {family}")
    if not asked.report:
        say = partial(print, flush=True)
        seeds = asked.seeds or SEEDS[family]
        known = _surveys(chosen, seeds, say, asked.processes)
        findings = found_by_fuzz(family)
        unsound = {worlds: each.unsound for worlds, each in known.items()}
        with closing(Forks()) as forks:
            Trial(findings, say, seeds, asked.processes, unsound, forks=forks).run(chosen)
    found = {each: found_by_fuzz(each) for each in TRIED}
    targets = {name: [each.name for each in all_()] for name, all_ in TRIED.items()}
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    text, summary, is_well = page(targets, found, before, program_commit())
    if not asked.only:
        PAGE.write_text(text, encoding="utf-8")
    print(summary)
    if asked.only or family == NEEDS:  # the page's bound is for a whole run of the mistakes
        latest = [found[family].latest(each.name) for each in chosen]
        is_to_be_found = family != NEEDS
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
