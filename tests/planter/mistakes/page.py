"""The page of results: which mutants were found, by which property, and how soon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from tests.planter.findings import ROOT, Finding, Findings
from tests.planter.mistakes.entries import Mistake, mistakes
from tests.planter.mistakes.families import MISTAKES, NEEDS, worlds_of
from tests.planter.mistakes.survivors import WOULD_FIND

PAGE: Final = ROOT / "docs" / "how-we-know" / "mistakes-found.md"
FOUND_MIN: Final = 0.95  # of the mistakes made by hand

_HEAD: Final = """\
# Mistakes that were found

`make mutants` writes this page. Each mutant is planted in a process of its own, which plays seeds
until one breaks a property ([Planted mistakes](mistakes.md)). Seeds are counted from the first one
to the one that broke the property; seconds are processor time.
"""
TITLES: Final = {
    MISTAKES: "Mistakes made by hand",
    NEEDS: "Mistakes that need a fault, in worlds without faults",
}


def page(
    targets: Mapping[str, Sequence[str]],
    found: Mapping[str, Findings],
    before: str = "",
    commit: str = "",
) -> tuple[str, str, bool]:
    """Return the page, its figures as text, and whether enough mistakes were found.

    A family of which nothing is known in this program keeps its section of the page `before`.
    """
    sections, summary = [_HEAD], []
    is_well = True
    for family, names in targets.items():
        known = {each.mutant: each for name in names if (each := found[family].latest(name))}
        figures = (_calm_figures if family == NEEDS else _figures)(names, known)
        summary.append(f"{TITLES[family]}: {figures}")
        if not known and (kept := _section(before, TITLES[family])):
            sections.append(kept)
            continue
        title = f"## {TITLES[family]}\n\n"
        sections.append(f"{title}{_program(commit)}{figures}\n" if known else f"{title}{figures}\n")
        if family == MISTAKES:
            sections += [_table(known), _properties(known), *_alive(known)]
            counted = [each for each in mistakes() if not each.same]
            nfound = sum(bool(known[each.id].by) for each in counted if each.id in known)
            is_well = nfound >= FOUND_MIN * len(counted)
        else:  # there nothing is to be found
            sections.append(_properties(known))
    return "\n".join(each for each in sections if each), "\n".join(summary), is_well


def _section(text: str, title: str) -> str:
    """Return the section of a page, "" if there is none."""
    _, found, after = text.partition(f"## {title}\n")
    section = after.partition("\n## ")[0].rstrip()
    return f"{found}{section}\n" if found else ""


def _program(commit: str) -> str:
    return f"The program is that of commit {commit}.\n\n" if commit else ""


def _figures(names: Sequence[str], known: Mapping[str, Finding]) -> str:
    if not known:
        return f"{len(names)} mutants, not run."
    killed = [each for each in known.values() if each.by]
    alive = [each for each in known.values() if not each.by]
    text = f"{len(killed)} of {len(names)} found"
    if len(known) < len(names):
        text += f", {len(names) - len(known)} not run"
    if alive:
        fewest = min(each.ran for each in alive)
        text += f"; of each that was not found, {fewest} seeds or more were played"
    if killed:
        seeds = median([each.ran for each in killed])
        seconds = median([each.seconds for each in killed])
        text += f"; median {seeds:g} seeds, {seconds:.1f} s"
    return f"{text}."


def _calm_figures(names: Sequence[str], known: Mapping[str, Finding]) -> str:
    """Say which mistakes are labelled as if they needed a fault, and do not."""
    if not known:
        return f"{len(names)} mistakes, not run."
    found = [each for each in known.values() if each.by]
    seeds = min((each.ran for each in known.values() if not each.by), default=0)
    text = f"{len(found)} of {len(known)} found, the others not by {seeds} seeds or more"
    return f"{text}: {', '.join(f'`{each.mutant}`' for each in found)}." if found else f"{text}."


def _table(known: Mapping[str, Finding]) -> str:
    columns = ("mistake", "like", "needs", "worlds", "found by", "seeds", "seconds")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [_row(each, known.get(each.id)) for each in mistakes()]
    return "\n".join(lines) + "\n"


def _row(mistake: Mistake, found: Finding | None) -> str:
    source = mistake.source.partition(": ")[0]
    by, ran, seconds = "not run", "", ""
    if found is not None:
        by = f"`{found.by}`" if found.by else "nothing"
        ran, seconds = str(found.ran), f"{found.seconds:.1f}"
    text = f"`{mistake.id}`: {mistake.wrong}"
    worlds = worlds_of(mistake).name.replace("-", ", ") or "cores"
    return f"| {text} | {source} | {mistake.needs or '-'} | {worlds} | {by} | {ran} | {seconds} |"


def _properties(known: Mapping[str, Finding]) -> str:
    counted = Counter(each.by for each in known.values() if each.by)
    if not counted:
        return ""
    order = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return "Found by: " + ", ".join(f"`{by}` ({count})" for by, count in order) + ".\n"


def _alive(known: Mapping[str, Finding]) -> Iterator[str]:
    """Yield the list of those that were not found, if there are any."""
    lines = [_alive_line(each) for each in known.values() if not each.by]
    if lines:
        yield "Not found:\n\n" + "\n".join(lines) + "\n"


def _alive_line(found: Finding) -> str:
    line = f"- `{found.mutant}`, {found.ran} seeds"
    if same := next((each.same for each in mistakes() if each.id == found.mutant), ""):
        return f"{line}. No behaviour depends on it: {same}."
    would = WOULD_FIND.get(found.mutant)
    return f"{line}. What would find it: {would}." if would else line
