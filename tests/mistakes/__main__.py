"""`python -m tests.mistakes`: does `flux-trio fuzz` find each planted mistake?

Each mutant is planted in a process that plays seeds and stops at the first broken property. A seed
whose world does not reach what a mutant changes is not played with it. Findings are kept in
.mutants/: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from functools import partial
from typing import Final

from tests.mistakes.families import FAMILIES, code_now, found_by_fuzz, program_commit
from tests.mistakes.forking import Forks
from tests.mistakes.page import PAGE, page
from tests.mistakes.reaching import survey
from tests.mistakes.trying import Trial
from tests.planter.findings import KEPT

SEEDS: Final = {"mistakes": 1000, "actions": 200, "rows": 200}
"""By family: at most so many seeds for each mutant, so that a run takes two hours at most."""


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    begin = time.monotonic()
    chosen = [each for each in FAMILIES[asked.family]() if asked.only in ("", each.name)]
    if not chosen:
        sys.exit(f"no mutant {asked.only} in {asked.family}")
    if not asked.report:
        say = partial(print, flush=True)
        seeds = asked.seeds or SEEDS[asked.family]
        known = survey(KEPT / "fuzz" / f"reached-{code_now()}.json", seeds, say)
        findings = found_by_fuzz(asked.family)
        unsound, reached = tuple(known.unsound), known.reached
        with closing(Forks()) as forks:
            trial = Trial(
                findings, say, seeds, asked.processes, unsound, forks=forks, reached=reached
            )
            trial.run(chosen)
        print(f"this run: {(time.monotonic() - begin) / 60:.1f} min")
    found = {family: found_by_fuzz(family) for family in FAMILIES}
    targets = {family: [each.name for each in all_()] for family, all_ in FAMILIES.items()}
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    text, summary, is_well = page(targets, found, before, program_commit())
    if not asked.only:
        PAGE.write_text(text, encoding="utf-8")
    print(summary)
    if asked.only:  # the page's bound is for a whole run
        latest = [found[asked.family].latest(each.name) for each in chosen]
        is_well = all(each is not None and each.by for each in latest)
    return 0 if is_well else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.mistakes", description=__doc__)
    add = parser.add_argument
    add("family", nargs="?", default="mistakes", choices=FAMILIES)
    add("--only", default="", metavar="MUTANT", help="this one alone")
    add("--seeds", type=int, help=f"at most so many for each mutant, else {SEEDS}")
    add("--processes", type=int, default=2)
    add("--report", action="store_true", help="run nothing, write what was found")
    return parser


if __name__ == "__main__":
    sys.exit(main())
