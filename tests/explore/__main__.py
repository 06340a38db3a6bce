"""`python -m tests.explore [WORLD ...]`: every interleaving of the small worlds.

The states of the judge's rules are carried along. Each world has a process of its own, two at a
time. What was found is kept in .mutants/explore/ for the program as it is: a world that was
finished is not explored again, and a run that was stopped goes on with those that are left.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

from tests.explore.exploring import explore_all
from tests.explore.search import WORLDS
from tests.planter.findings import KEPT, Findings, program_now


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    begin = time.monotonic()
    names = asked.worlds or list(WORLDS)
    if unknown := set(names) - set(WORLDS):
        sys.exit(f"expected some of the worlds {', '.join(WORLDS)}, got {', '.join(unknown)}")
    findings = Findings(KEPT / "explore" / "worlds.jsonl", program_now())
    plans = {name: WORLDS[name] for name in names}
    try:
        found = explore_all(plans, findings, asked.processes, partial(print, flush=True))
    except KeyboardInterrupt:
        print("stopped; the next run explores the worlds that were not finished")
        return 1
    print(f"this run: {(time.monotonic() - begin) / 60:.1f} min")
    return 1 if any(each.by for each in found) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.explore", description=__doc__)
    add = parser.add_argument
    add("worlds", nargs="*", metavar="WORLD", help="by default all")
    add("--processes", type=int, default=2)
    return parser


if __name__ == "__main__":
    sys.exit(main())
