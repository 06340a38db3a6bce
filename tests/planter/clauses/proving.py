"""Break each clause: does the test that shows it fail?

Each proof plants its operator, or its edits of functions, in the memory of a process of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from functools import partial

from flux_trio.judge import load_clauses
from tests.planter.clauses.entries import PlantedEntry, Proof, ProofFile, faults_of, read_entries
from tests.planter.clauses.results import entries_by_clause, statuses_now, why_not_planted
from tests.planter.clauses.trying import try_proofs, why_of
from tests.planter.findings import KEPT, Findings, code_now
from tests.support.clause_mentions import clause_mentions
from tests.support.clause_status import counts


def run(asked: argparse.Namespace) -> int:
    """Try the proofs that have no finding of this code; print those that do not hold."""
    files = read_entries()
    if faults := faults_of(files, load_clauses(), clause_mentions()):
        print(*faults, sep="\n")
        return 2
    entries = chosen(files.values(), asked.only)
    findings = Findings(KEPT / "proofs" / "findings.jsonl", code_now())
    if not asked.report:
        proofs = [each for each in entries if isinstance(each, Proof)]
        try_proofs(proofs, findings, asked.processes, partial(print, flush=True))
    wrong = [(each, why) for each in entries if (why := _why_not(each, findings))]
    for each, why in wrong:
        print(f"{' '.join(each.ids)}: not proven by {each.test}: {why}")
    print(counts(statuses_now()), end="")
    print(f"{len(entries)} entries, {len(wrong)} do not hold")
    return 1 if wrong else 0


def chosen(files: Iterable[ProofFile], asked: Sequence[str]) -> list[Proof | PlantedEntry]:
    """The entries about the clauses that `asked` names, all when it is empty."""
    wanted = tuple(f"{each}." for each in asked) or ("",)
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
    return "not tried" if finding is None else "" if finding.by else why_of(finding)
