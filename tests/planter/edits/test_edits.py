"""The planted matrix of recordings: a part of it here, the whole by `make edits`."""

from __future__ import annotations

from pathlib import Path

from tests.planter.edits import making, trying
from tests.planter.findings import Findings

PART = 100


def test_edits_are_named_by_their_clause(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "findings.jsonl", "now")
    part = making.edits()[:PART]
    trying.try_all(part, findings)
    found = trying.outcomes(part, findings)
    assert [each.edit.name for each in found if each.row.harmless and each.named] == []
    text, _ = trying.report(found)
    judged = [each for each in found if not each.row.harmless]
    own = sum(each.word == trying.OWN for each in judged)
    assert own >= trying.OWN_MIN * len(judged), text
    silent = sum(each.word == trying.SILENT for each in judged)
    assert silent <= 2 * trying.SILENT_MAX * len(judged), text  # of a part
