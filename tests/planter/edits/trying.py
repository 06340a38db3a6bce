"""Has the judge judge edits, and keeps what it said."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.planter.edits.making import Edit, made
from tests.planter.edits.table import Row, row_of, rows
from tests.planter.findings import ROOT, Finding, Findings
from tests.support.recorded import broken, recording

OWN, OTHERWISE, SILENT, HARMLESS = "own clause", "otherwise", "silent", "harmless"
PAGE: Final = ROOT / "docs" / "how-we-know" / "edits.md"
OWN_MIN: Final = 0.85
SILENT_MAX: Final = 0.03
HARMLESS_MAX: Final = 0.30


@functools.cache
def _before(number: str) -> frozenset[str]:
    return frozenset(broken(recording(number), at_rest=True))


def try_edit(edit: Edit) -> Finding:
    """Judge a recording with an edit: `by` has the clauses that are broken because of it."""
    begin = time.process_time()
    named = broken(made(edit), at_rest=True) - _before(edit.unit.number)
    seconds = time.process_time() - begin
    return Finding(edit.name, " ".join(sorted(named)), seconds=round(seconds, 4))


def try_all(edits: Iterable[Edit], findings: Findings) -> None:
    """Try each edit that has no finding of this code yet."""
    for edit in edits:
        if findings.of(edit.name) is None:
            findings.add(try_edit(edit))


@dataclass(frozen=True)
class Outcome:
    """What the judge said to an edit, and what the table expects."""

    edit: Edit
    row: Row
    named: tuple[str, ...]

    @property
    def word(self) -> str:
        if self.row.harmless:
            return HARMLESS
        if any(map(self.row.names, self.named)):
            return OWN
        return OTHERWISE if self.named else SILENT


def outcomes(edits: Iterable[Edit], findings: Findings) -> list[Outcome]:
    """The outcomes of the edits that were tried."""
    table = rows()
    pairs = [(edit, findings.of(edit.name)) for edit in edits]
    return [
        Outcome(edit, row_of(edit, table), tuple(found.by.split()))
        for edit, found in pairs
        if found is not None
    ]


def report(found: list[Outcome]) -> tuple[str, bool]:
    """The figures of each kind of edit, those not named by their clause; whether all is well."""
    lines = []
    kinds = list(dict.fromkeys(each.edit.kind for each in found))
    for kind in sorted(kinds):
        count = Counter(each.word for each in found if each.edit.kind == kind)
        lines.append(f"{kind:14} " + _figures(count))
    total = Counter(each.word for each in found)
    lines.append(f"{'all':14} " + _figures(total))
    judged = total.total() - total[HARMLESS] or 1
    own, silent = total[OWN] / judged, total[SILENT] / judged
    harmless = total[HARMLESS] / (total.total() or 1)
    named = [each for each in found if each.word == HARMLESS and each.named]
    lines.append(
        f"own clause {own:.1%}, silent {silent:.1%} of {judged}; harmless {harmless:.1%} of all, "
        f"{len(named)} of them are named"
    )
    is_well = own >= OWN_MIN and silent <= SILENT_MAX and harmless <= HARMLESS_MAX
    return "\n".join(lines), is_well and not named


def page(found: list[Outcome]) -> str:
    """The figures, and the edits that were silent or named otherwise, in Markdown."""
    lines = [HEAD, "```text", report(found)[0], "```", "", "## Edits that no clause names", ""]
    lines += ["| edit | clauses that state it |", "|---|---|"]
    silent = [each for each in found if each.word == SILENT]
    lines += [f"| {_cell(each.edit.name)} | {_cell(each.row)} |" for each in silent]
    lines += ["", "## Edits that other clauses name", ""]
    lines += ["| edit | clauses that state it | clauses that are named |", "|---|---|---|"]
    lines += [
        f"| {_cell(each.edit.name)} | {_cell(each.row)} | {' '.join(each.named)} |"
        for each in found
        if each.word == OTHERWISE
    ]
    return "\n".join(lines) + "\n"


HEAD: Final = """# What the judge does not see in recordings of flux-core

The judge is tried on edits of all 50 recordings of flux-core 0.88: a message or event is deleted,
repeated, moved, or one field of it is changed, by a seed. A table says, before the judge sees any,
which clauses the edit breaks, or why it is harmless. `make edits` makes this page (about a minute
of one processor; a run that was stopped goes on).
"""


def _cell(what: str | Row) -> str:
    text = what if isinstance(what, str) else " ".join(what.clauses)
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "\\<")


def write_page(found: list[Outcome]) -> None:
    """Write the page in docs."""
    PAGE.write_text(page(found), encoding="utf-8")


def _figures(count: Counter[str]) -> str:
    return "  ".join(f"{word} {count[word]:4}" for word in (OWN, OTHERWISE, SILENT, HARMLESS))
