"""`python -m tests.planter.edits`: have edits of recordings judged, and report what is not named.

Findings are kept in .mutants/; a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import sys

from tests.planter.edits.making import SEED, edits
from tests.planter.edits.trying import outcomes, page, report, try_all, write_page
from tests.planter.findings import KEPT, Findings, code_now


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    scope = f"seed {asked.seed}"
    findings = Findings(KEPT / "edits" / "findings.jsonl", code_now(), scope)
    drawn = edits(asked.seed)
    try_all(drawn, findings)
    found = outcomes(drawn, findings)
    text, is_well = report(found)
    print(page(found) if asked.all else text)
    if asked.write:
        write_page(found)
    return 0 if is_well else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.planter.edits", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, default=SEED, help="which edits are drawn")
    add("--all", action="store_true", help="print the page: figures, and each that is not named")
    add("--write", action="store_true", help="write the page in docs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
