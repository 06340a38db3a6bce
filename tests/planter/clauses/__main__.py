"""`python -m tests.planter.clauses`: does the test of a clause fail if the program breaks it?

Each proof plants its operator, or edits a copy of the program, and runs the file of its test.
Findings are kept in .mutants/: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterable

from flux_trio.judge import load_clauses
from tests.planter.clauses.entries import PlantedEntry, Proof, ProofFile, faults_of, read_entries
from tests.planter.clauses.results import entries_by_clause, statuses_now, why_not_planted
from tests.planter.clauses.trying import Trial
from tests.planter.findings import KEPT, Findings, code_now
from tests.support.clause_mentions import clause_mentions
from tests.support.clause_status import counts


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)
    begin = time.monotonic()
    files = read_entries()
    if faults := faults_of(files, load_clauses(), clause_mentions()):
        print(*faults, sep="\n")
        return 2
    entries = chosen(files.values(), asked.clause)
    findings = Findings(KEPT / "proofs" / "findings.jsonl", code_now())
    trial = Trial(findings, lambda text: print(text, flush=True), asked.processes)
    trial.run(entry for entry in entries if isinstance(entry, Proof))
    wrong = [(each, why) for each in entries if (why := _why_not(each, findings))]
    for each, why in wrong:
        print(f"{' '.join(each.ids)}: not proven by {each.test}: {why}")
    print(counts(statuses_now()), end="")
    took = (time.monotonic() - begin) / 60
    print(f"{len(entries)} entries, {len(wrong)} do not hold; {took:.1f} min")
    return 1 if wrong else 0


def _stop(number: int, frame: object) -> None:
    """End the run as Control-C does."""
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.planter.clauses", description=__doc__)
    add = parser.add_argument
    add("--clause", default="", metavar="ID,...", help="only these; 27.alloc is its whole section")
    add("--processes", type=int, default=2)
    return parser


def chosen(files: Iterable[ProofFile], asked: str) -> list[Proof | PlantedEntry]:
    """The entries about the clauses that `asked` names, all when it is empty."""
    wanted = tuple(f"{each}." for each in asked.split(",")) if asked else ("",)
    found = {
        entry.digest(): entry
        for entries in files
        for clause, entry in entries_by_clause(entries).items()
        if f"{clause}.".startswith(wanted)
    }
    return list(found.values())


def _why_not(entry: Proof | PlantedEntry, findings: Findings) -> str:
    """Why an entry does not prove its clauses; empty if it does."""
    if isinstance(entry, PlantedEntry):
        return why_not_planted(entry)
    finding = findings.of(entry.digest())
    return "not tried" if finding is None else "" if finding.by else finding.why


if __name__ == "__main__":
    sys.exit(main())
