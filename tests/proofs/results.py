"""Which clauses are proven: the files rfcNN.proven, and the status of every clause.

A file has a line for each clause, with the digest of its entry. A clause whose entry or test has
changed since is not proven any more, until it is tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from flux_trio.judge import ClauseStatus, judge, load_clauses, load_reasons, report
from tests.planter.findings import ROOT
from tests.proofs.entries import HERE, PlantedEntry, Proof, ProofFile, read_entries
from tests.support.clause_mentions import clause_mentions
from tests.support.planted import all_planted, fires
from tests.support.scenarios import breaks_of

STATUS: Final = ROOT / "tests" / "judge" / "clause_status.txt"
SUFFIX: Final = ".proven"

Entry = Proof | PlantedEntry


def entries_by_clause(entries: ProofFile) -> dict[str, Entry]:
    """The entry that is to prove each clause of a file."""
    found: dict[str, Entry] = {id_: proof for proof in entries.proof for id_ in proof.ids}
    return found | {each.clause: each for each in entries.planted}


def read_proven(file: Path) -> dict[str, str]:
    """The clauses of a file of entries that were proven, each with the digest of its entry."""
    path = file.with_suffix(SUFFIX)
    if not path.exists():
        return {}
    return dict(line.split() for line in path.read_text(encoding="utf-8").splitlines())


def write_proven(file: Path, entries: ProofFile, tried: Mapping[str, bool]) -> None:
    """Write which clauses of a file are proven; `tried` has the digests that were tried now."""
    before = read_proven(file)
    lines = []
    for clause, entry in entries_by_clause(entries).items():
        digest = entry.digest()
        if tried.get(digest, before.get(clause) == digest):
            lines.append(f"{clause} {digest}\n")
    lines.sort(key=_order)
    file.with_suffix(SUFFIX).write_text("".join(lines), encoding="utf-8")


def _order(line: str) -> tuple[int, str, int]:
    rfc, section, number = line.partition(" ")[0].split(".")
    return int(rfc), section, int(number)


def proven(directory: Path = HERE) -> dict[str, str]:
    """The clauses that are proven, each with its test."""
    found = {}
    for file, entries in read_entries(directory).items():
        digests = read_proven(file)
        for clause, entry in entries_by_clause(entries).items():
            if digests.get(clause) == entry.digest():
                found[clause] = entry.test
    return found


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
