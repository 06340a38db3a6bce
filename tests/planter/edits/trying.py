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
OWN_MIN: Final = 0.92
SILENT_MAX: Final = 0.02
HARMLESS_MAX: Final = 0.10


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
    """The figures of each operator and role; whether all is well."""
    lines = []
    for which in (0, 3):
        names = sorted({each.edit.cell[which] for each in found})
        for name in names:
            count = Counter(each.word for each in found if each.edit.cell[which] == name)
            lines.append(f"{name:15} " + _figures(count))
        lines.append("")
    total = Counter(each.word for each in found)
    lines.append(f"{'all':15} " + _figures(total))
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
    """The figures, and the table of all cells, in Markdown."""
    lines = [HEAD, "```text", report(found)[0], "```", ""]
    for word, title in TITLES.items():
        some = sorted((each for each in found if each.word == word), key=lambda o: o.edit.cell)
        lines += [f"## {title}", "", "| role | message or event | field | operator | clauses |"]
        lines += ["|---|---|---|---|---|"]
        lines += [f"| {' | '.join(map(_cell, each.edit.cell))} | {_said(each)} |" for each in some]
        lines.append("")
    return "\n".join(lines)


TITLES: Final = {
    SILENT: "Cells that no clause names",
    OTHERWISE: "Cells that other clauses name",
    HARMLESS: "Cells that are excused",
    OWN: "Cells that their own clause names",
}


def _said(outcome: Outcome) -> str:
    """What was named; of what should have been, the clauses that state it; or why it is excused."""
    if outcome.word == HARMLESS:
        return _cell(outcome.row.harmless)
    stated = _cell(" ".join(outcome.row.clauses))
    if outcome.word == SILENT:
        return f"stated by {stated}"
    named = " ".join(outcome.named)
    return named if outcome.word == OWN else f"{named}; stated by {stated}"


HEAD: Final = """# What the judge sees in edits of recordings of flux-core

Each message of each party, and each event of a job, is edited in the recordings of flux-core 0.88:
as a whole (lost, twice, early, late, to another peer, refused), and in each of its fields (absent,
null, of a wrong type, of another job, stale, one more or less, the first or last of a list lost).
There is one edit for each role, message, field and operator: a cell. A table says, from the text of
the RFCs, which clauses a cell breaks, or why it is excused. Most of its rows are older than the
first run; those of two blocks, which say so, were added after one, where a row was too general.
A cell that only an invariant of the judge names, which no RFC states, counts as named by another.
`make edits` makes this page (two minutes of one processor; a run that was stopped goes on).
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "\\<")


def write_page(found: list[Outcome]) -> None:
    """Write the page in docs."""
    PAGE.write_text(page(found), encoding="utf-8")


def _figures(count: Counter[str]) -> str:
    return "  ".join(f"{word} {count[word]:4}" for word in (OWN, OTHERWISE, SILENT, HARMLESS))
