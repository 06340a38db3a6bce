"""Which clauses have a proof, and the status of every clause."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flux_trio.judge import load_clauses
from tests.planter.clauses.entries import HERE, PlantedEntry, Proof, ProofFile, read_entries
from tests.planter.findings import ROOT
from tests.support.clause_mentions import clause_mentions
from tests.support.clause_status import ClauseStatus, judge, load_reasons, report
from tests.support.planted import all_planted, fires
from tests.support.scenarios import breaks_of

STATUS: Final = ROOT / "tests" / "judge" / "clause_status.txt"
Entry = Proof | PlantedEntry


def entries_by_clause(entries: ProofFile) -> dict[str, Entry]:
    """The entry that is to prove each clause of a file."""
    found: dict[str, Entry] = {id_: proof for proof in entries.proof for id_ in proof.ids}
    return found | {each.clause: each for each in entries.planted}


def proven(directory: Path = HERE) -> dict[str, str]:
    """The clauses that have a proof, each with its test."""
    return {
        clause: entry.test
        for entries in read_entries(directory).values()
        for clause, entry in entries_by_clause(entries).items()
    }


def unprovable(directory: Path = HERE) -> dict[str, str]:
    """The clauses that nothing here can break, each with the reason."""
    return {
        each.clause: each.reason
        for entries in read_entries(directory).values()
        for each in entries.unprovable
    }


def statuses_now() -> dict[str, ClauseStatus]:
    """The status of every clause, as the tests, the reasons and the proofs are now."""
    reasons = load_reasons() | unprovable()
    return judge(load_clauses(), clause_mentions(), reasons, proven())


def write_status() -> None:
    """Write the status file."""
    STATUS.write_text(report(statuses_now()), encoding="utf-8")


def why_not_planted(entry: PlantedEntry) -> str:
    """Why a planted violation does not prove its clause; empty if it does."""
    if entry.clause not in fires(entry.planted):
        return "the judge does not name the clause"
    if entry.clause in breaks_of(all_planted()[entry.planted].scenario):
        return "the clean trace breaks the clause too"
    return ""
