"""The page of results: which mutants were found, by which property, and how soon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from tests.mistakes.entries import Mistake, mistakes
from tests.mistakes.survivors import WOULD_FIND
from tests.planter.findings import ROOT, Finding, Findings

PAGE: Final = ROOT / "docs" / "reference" / "mistakes-found.md"
FOUND_MIN: Final = 0.95  # of the mistakes made by hand

_HEAD: Final = """\
# Mistakes that were found

`make mutants` writes this page. Each mutant is planted in a process of its own, which plays seeds
until one breaks a property ([Planted mistakes](mistakes.md)). Seeds are those that were played, the
last one broke the property; seconds are processor time.
"""
TITLES: Final = {
    "mistakes": "Mistakes made by hand",
    "actions": "Actions of cores, dropped or doubled",
    "rows": "Rows of the state tables, changed",
}


def page(
    targets: Mapping[str, Sequence[str]], found: Mapping[str, Findings]
) -> tuple[str, str, bool]:
    """Return the page, its figures as text, and whether enough mistakes were found."""
    sections, summary = [_HEAD], []
    is_well = True
    for family, names in targets.items():
        known = {each.mutant: each for name in names if (each := found[family].latest(name))}
        figures = _figures(names, known)
        summary.append(f"{TITLES[family]}: {figures}")
        sections.append(f"## {TITLES[family]}\n\n{figures}\n")
        if family == "mistakes":
            sections.append(_table(known))
            counted = [each for each in mistakes() if not each.same]
            nfound = sum(bool(known[each.id].by) for each in counted if each.id in known)
            is_well = nfound >= FOUND_MIN * len(counted)
        sections.append(_properties(known))
        sections.append(_alive(known))
    return "\n".join(each for each in sections if each), "\n".join(summary), is_well


def _figures(names: Sequence[str], known: Mapping[str, Finding]) -> str:
    killed = [each for each in known.values() if each.by]
    if not known:
        return f"{len(names)} mutants, not run."
    text = f"{len(killed)} of {len(names)} found"
    if len(known) < len(names):
        text += f", {len(names) - len(known)} not run"
    if len(killed) < len(known):
        fewest = min(each.ran for each in known.values() if not each.by)
        text += f"; of each that was not found, {fewest} seeds or more were played"
    if killed:
        seeds = median([each.ran for each in killed])
        seconds = median([each.seconds for each in killed])
        text += f"; median {seeds:g} seeds, {seconds:.1f} s"
    return f"{text}."


def _table(known: Mapping[str, Finding]) -> str:
    lines = ["| mistake | like | needs | found by | seeds | seconds |", "|---|---|---|---|---|---|"]
    lines += [_row(each, known.get(each.id)) for each in mistakes()]
    return "\n".join(lines) + "\n"


def _row(mistake: Mistake, found: Finding | None) -> str:
    source = "our own" if mistake.source.startswith("our own") else mistake.source
    by, ran, seconds = "not run", "", ""
    if found is not None:
        by = f"`{found.by}`" if found.by else "nothing"
        ran, seconds = str(found.ran), f"{found.seconds:.1f}"
    text = f"`{mistake.id}`: {mistake.wrong}"
    return f"| {text} | {source} | {mistake.needs or '-'} | {by} | {ran} | {seconds} |"


def _properties(known: Mapping[str, Finding]) -> str:
    counted = Counter(each.by for each in known.values() if each.by)
    if not counted:
        return ""
    order = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return "Found by: " + ", ".join(f"`{by}` ({count})" for by, count in order) + ".\n"


def _alive(known: Mapping[str, Finding]) -> str:
    alive = [_alive_line(each) for each in known.values() if not each.by]
    return "Not found:\n\n" + "\n".join(alive) + "\n" if alive else ""


def _alive_line(found: Finding) -> str:
    line = f"- `{found.mutant}`, {found.ran} seeds"
    would = WOULD_FIND.get(found.mutant)
    return f"{line}. What would find it: {would}." if would else line
