"""Edit recordings of flux-core: does the judge name what is made wrong?"""

from __future__ import annotations

import argparse

from tests.planter.edits.making import SEED, edits
from tests.planter.edits.trying import outcomes, page, report, try_all, write_page
from tests.planter.findings import KEPT, Findings, code_now


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--seed", type=int, default=SEED, help="which edits are drawn")
    add("--all", action="store_true", help="print the page: figures, and each that is not named")
    add("--write", action="store_true", help="write the page in docs")


def run(asked: argparse.Namespace) -> int:
    """Have the edits judged that have no finding of this code; print the figures of all."""
    findings = Findings(KEPT / "edits" / "findings.jsonl", code_now(), f"seed {asked.seed}")
    drawn = edits(asked.seed)
    if not asked.report:
        try_all((each for each in drawn if not asked.only or each.name in asked.only), findings)
    found = outcomes(drawn, findings)
    text, is_well = report(found)
    print(page(found) if asked.all else text)
    if asked.write:
        write_page(found)
    return 0 if is_well else 1
