"""The page *Conformance of real implementations*, and its table in the README."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.real.conformance import loading, rates, reasons
from tests.real.conformance.results import Broken, Examined, Found, Results
from tests.real.conformance.testees import KINDS

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "docs" / "how-we-know" / "conformance.md"
README: Final = ROOT / "README.md"
BEGIN, END = "<!-- conformance -->\n", "<!-- /conformance -->\n"

SCHEDULERS: Final = ("sched-simple", "sched-fifo", "sched-backfill", "fluxion", "ours, attached")
"""Testees of which the scheduler is shown; they run in an instance of flux-core."""
CORE: Final = ("job-manager", "job-exec", "resource")
"""Parties of flux-core, from the stories of all these testees."""
OURS: Final = "flux-trio, "
HERE: Final = " here"

HEAD: Final = """# Conformance of real implementations

`make real-conformance` plays the same {kinds} stories in a live instance of each implementation,
records every message, and has the judge say of each clause whether it was kept, was broken, or was
not exercised. A story is an act while jobs are in a state: a job is canceled while it waits, a
node is drained while jobs run, the scheduler is loaded again while jobs start.
`tests/real/conformance` plays them; the kinds are those of [innocent stories](innocent-stories.md).

Clauses are those of the newest RFCs that bind the party by its role: a scheduler has those about
the scheduler and about the R that it makes. A clause counts as broken if it was broken once. *Not
exercised* says nothing good or bad: no story makes the clause apply, or no message shows it.
"""


def page(results: Results) -> str:
    """Return the page."""
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results.versions.items()))
    parts = [HEAD.format(kinds=KINDS), f"Last run: {_dates(results)}, with {versions}.\n"]
    parts += ["\n".join(_table(results)), ""]
    parts += ["## Modules of flux-core in an instance of flux-trio\n", *_here(results), ""]
    parts += ["## What is broken, and why\n", *_all_broken(results), ""]
    parts += ["## Stories that did not end\n", *_wrong(results), ""]
    parts += ["## Jobs a second\n", *_rates(results)]
    return "\n".join(parts).rstrip() + "\n"


def table(results: Results) -> str:
    """Return the table that the README has."""
    return "\n".join(_table(results)) + "\n"


def write(results: Results) -> None:
    """Write the page, and its table into the README."""
    PAGE.write_text(page(results), encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.partition(END)[2]
    README.write_text(f"{before}{BEGIN}{table(results)}{END}{after}", encoding="utf-8")


def parties(results: Results) -> dict[str, Found]:
    """Return what was found of each implementation, in the order of the table."""
    found: dict[str, Found] = {}
    for name in SCHEDULERS:
        if name in results.testees:
            found[f"{name} (scheduler)"] = results.testees[name].parties.get("scheduler", Found())
    for party in CORE:
        whole = found[f"flux-core's {party}"] = Found()
        for name in SCHEDULERS:
            if name in results.testees:
                whole.add(results.testees[name].parties.get(party, Found()))
    for name, examined in results.testees.items():
        if name.startswith(OURS):
            for party in ("scheduler", *CORE):
                whole = examined.parties.get(party, Found())
                found[f"flux-trio's {party}, {name.removeprefix(OURS)}"] = whole
    return found


def _dates(results: Results) -> str:
    dates = sorted({each.date for each in results.testees.values()})
    return dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"


def _table(results: Results) -> Iterator[str]:
    yield "| implementation | kept | broken | not exercised |"
    yield "|---|---|---|---|"
    for name, found in parties(results).items():
        yield f"| {name} | {' | '.join(map(str, found.counts))} |"


def _here(results: Results) -> Iterator[str]:
    yield "flux-core's own schedulers, unmodified and loaded by its own loader, in an instance of"
    yield "flux-trio, with the same stories: what they break there, and what flux-trio breaks."
    yield "`flux-trio exercise sched` drives none of them: it starts a program, which speaks"
    yield "flux-trio's own wire, and these are modules for flux-core's loader, fluxion three of"
    yield "them. What its acts ask beyond the stories is not exercised here.\n"
    yield "| scheduler | broken by it | broken by flux-trio's services |"
    yield "|---|---|---|"
    for name, examined in _testees_here(results).items():
        theirs = _names(examined.parties.get("scheduler", Found()))
        ours = Found()
        for party in CORE:
            ours.add(examined.parties.get(party, Found()))
        yield f"| {name} | {theirs} | {_names(ours)} |"
    yield f"\nMuch work, too: {loading.NJOBS} jobs at once, and then {loading.LOGGED} of a log of"
    yield "Lassen with shortened run times, on 128 simulated nodes of 44 cores, under the live"
    yield "monitor.\n"
    yield "| scheduler | jobs | successful | seconds | broken | by | first message |"
    yield "|---|---|---|---|---|---|---|"
    for name, loaded in results.loads.items():
        done = f"{loaded.njobs} | {loaded.nsuccessful} | {loaded.seconds:.0f}"
        said = [
            f"`{clause}` | {party} | {_escaped(broken.text)}"
            for party, clauses in sorted(loaded.broken.items())
            for clause, broken in sorted(clauses.items())
        ]
        for each in said or ["nothing | | "]:
            yield f"| {name.removesuffix(HERE)} | {done} | {each} |"


def _testees_here(results: Results) -> dict[str, Examined]:
    return {
        name.removesuffix(HERE): each
        for name, each in results.testees.items()
        if name.endswith(HERE)
    }


def _names(found: Found) -> str:
    return ", ".join(f"`{clause}`" for clause in sorted(found.clauses_broken)) or "nothing"


def _all_broken(results: Results) -> Iterator[str]:
    yield "| implementation | clause | times | reason | script |"
    yield "|---|---|---|---|---|"
    for name, found in parties(results).items():
        yield from _rows(name, found)
    for name, examined in _testees_here(results).items():
        yield from _rows(f"{name}, in flux-trio", examined.parties.get("scheduler", Found()))
        for party in CORE:
            whole = examined.parties.get(party, Found())
            yield from _rows(f"flux-trio's {party}, with {name}", whole)


def _rows(name: str, found: Found) -> Iterator[str]:
    links = reasons.scripts()
    for broken in sorted(found.broken, key=lambda each: (each.clause, each.known)):
        departure = reasons.KNOWN.get(broken.known)
        if departure is None or name.startswith("flux-trio's"):
            reason, script = _said(broken), "none yet"
        else:
            reason, script = f"{departure.why} `{departure.where}`", links[departure.why]
        yield f"| {name} | `{broken.clause}` | {broken.count} | {reason} | {script} |"


def _said(broken: Broken) -> str:
    return f"not known; the judge says: {_escaped(broken.text)}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _wrong(results: Results) -> Iterator[str]:
    if not any(each.wrong for each in results.testees.values()):
        yield "None."
        return
    yield "What these show up to then was judged like the rest.\n"
    yield "| testee | story | what happened |"
    yield "|---|---|---|"
    for name, examined in results.testees.items():
        for kind, text in examined.wrong.items():
            line = " ".join(text.split()).replace("|", "\\|")[:200]
            yield f"| {name} | {kind} | {line} |"


def _rates(results: Results) -> Iterator[str]:
    if results.speeds is None:
        yield "Not measured."
        return
    found = results.speeds.rates
    first = statistics.median(found["sched-simple"])
    yield f"flux-core's `src/test/throughput.py` with {results.speeds.jobs} simulated jobs, in one"
    yield f"live flux-core of {rates.NODES} nodes with {rates.CORES} cores, all schedulers in"
    yield f"turns; {results.speeds.machine}."
    yield "Where the machine was busy, only the ratios say something.\n"
    yield "| scheduler | jobs/s, median | least and most | repeats | sched-simple is 1 |"
    yield "|---|---|---|---|---|"
    for name, each in found.items():
        median = statistics.median(each)
        row = (f"{median:.1f}", f"{min(each):.1f} to {max(each):.1f}", str(len(each)))
        named = "ours, attached" if name.startswith("attach:") else name
        yield f"| {named} | {' | '.join(row)} | {median / first:.2f} |"
