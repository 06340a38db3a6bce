"""Which clauses are proven: the files rfcNN.proven, and the status of every clause.

A file has a line for each clause, with the digest of its entry, and the digest of the files that
were edited and tested when the entry was tried. A clause whose entry or test has changed since is
not proven any more, until it is tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from flux_trio.judge import ClauseStatus, judge, load_clauses, load_reasons, report
from tests.planter.findings import ROOT
from tests.proofs.entries import HERE, PlantedEntry, Proof, ProofFile, read_entries
from tests.support.clause_mentions import clause_mentions
from tests.support.planted import all_planted, fires
from tests.support.scenarios import breaks_of

STATUS: Final = ROOT / "tests" / "judge" / "clause_status.txt"
SUFFIX: Final = ".proven"
NO_FILES: Final = "-"

Entry = Proof | PlantedEntry


def entries_by_clause(entries: ProofFile) -> dict[str, Entry]:
    """The entry that is to prove each clause of a file."""
    found: dict[str, Entry] = {id_: proof for proof in entries.proof for id_ in proof.ids}
    return found | {each.clause: each for each in entries.planted}


class Tried(NamedTuple):
    """What was tried when a clause was proven: digests of the entry, and of the files' texts."""

    entry: str
    files: str


def tried_now(entry: Entry) -> Tried:
    """What is tried if `entry` is tried now; a planted violation edits no file."""
    return Tried(entry.digest(), entry.files_digest() if isinstance(entry, Proof) else NO_FILES)


def read_proven(file: Path) -> dict[str, Tried]:
    """The clauses of a file of entries that were proven, each with what was tried."""
    path = file.with_suffix(SUFFIX)
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {clause: Tried(*digests) for clause, *digests in map(str.split, lines)}


def write_proven(file: Path, entries: ProofFile, held: Mapping[str, bool]) -> None:
    """Write which clauses of a file are proven; `held` has the digests of what was tried now."""
    before = read_proven(file)
    lines = []
    for clause, entry in entries_by_clause(entries).items():
        now = tried_now(entry)
        known = before.get(clause)
        if now.entry in held:
            known = now if held[now.entry] else None
        if known is not None and known.entry == now.entry:
            lines.append(f"{clause} {' '.join(known)}\n")
    lines.sort(key=_order)
    file.with_suffix(SUFFIX).write_text("".join(lines), encoding="utf-8")


def _order(line: str) -> tuple[int, str, int]:
    rfc, section, number = line.partition(" ")[0].split(".")
    return int(rfc), section, int(number)


def proven(directory: Path = HERE) -> dict[str, str]:
    """The clauses that are proven, each with its test."""
    found = {}
    for file, entries in read_entries(directory).items():
        known = read_proven(file)
        for clause, entry in entries_by_clause(entries).items():
            if clause in known and known[clause].entry == entry.digest():
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
