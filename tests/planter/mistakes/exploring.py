"""Plant the mistakes that fuzz leaves alive: does a search find them?

Each is planted in a process that explores small worlds until a property is broken. A mistake that
fuzz has found in the program as it is, is left out; so is one in the shells or in a plugin for
sites, which small worlds do not have.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.planter.findings import KEPT, ROOT, Finding, Findings
from tests.planter.mistakes import small_worlds
from tests.planter.mistakes.families import MISTAKES, code_now, found_by_fuzz, mistake_targets
from tests.planter.mistakes.small_worlds import ROUNDS, SMALL_WORLDS, STATES_MAX
from tests.planter.mistakes.trying import Target, Trial
from tests.planter.mistakes.worlds import PLAIN

PAGE: Final = ROOT / "docs" / "how-we-know" / "mistakes-explored.md"
WORKER: Final = "tests.planter.mistakes.searching"
NAMES: Final = list(SMALL_WORLDS)
PROGRAM: Final = Target("the program without a mutant", dict)

_HEAD: Final = f"""\
# Mistakes that a search finds

`make mutants` writes this page. What `flux-trio fuzz` has not found is planted once more, and
{len(NAMES)} small worlds are explored, each until {STATES_MAX:,} states are met
([Planted mistakes](mistakes.md)). The steps are those of the shortest way to what is broken.
"""


def run(asked: argparse.Namespace) -> int:
    """Explore with each such mistake; write the page of results."""
    say = partial(print, flush=True)
    if not asked.report:
        _explore(asked.only, asked.processes, say)
    text, summary = page(found_by_search())
    if not asked.only:
        PAGE.write_text(text, encoding="utf-8")
    say(summary)
    return 0


def _explore(only: Sequence[str], processes: int, say: Callable[[str], None]) -> None:
    fuzz = found_by_fuzz(MISTAKES)
    chosen = [each for each in mistake_targets() if not only or each.name in only]
    there = [each for each in chosen if each.worlds == PLAIN]
    alive = [each for each in there if is_alive(fuzz.latest(each.name))]
    say(f"{len(alive)} of {len(chosen)} mistakes are not found by fuzz at depth cores")
    if not alive:
        return
    findings = found_by_search()
    trial = Trial(
        findings, say, len(NAMES), processes, worker=WORKER, name=NAMES.__getitem__, rounds=ROUNDS
    )
    trial.run([PROGRAM])
    sound = findings.of(PROGRAM.name)
    if sound is None or sound.by:
        sys.exit(f"a property is broken without a mutant: {sound}")
    trial.run(alive)


def is_alive(found: Finding | None) -> bool:
    """Whether fuzz has left a mistake alive."""
    return found is None or not found.by


def found_by_search() -> Findings:
    """Return what searches have found; that they found nothing holds for one scope."""
    scope = hashlib.sha256(Path(small_worlds.__file__).read_bytes()).hexdigest()[:16]
    return Findings(KEPT / "explore" / f"{MISTAKES}.jsonl", code_now(), scope)


def page(findings: Findings) -> tuple[str, str]:
    """Return the page, and its figures as text."""
    names = [each.name for each in mistake_targets()]
    tried = [each for name in names if (each := findings.of(name)) is not None]
    figures = f"{sum(bool(each.by) for each in tried)} of {len(tried)} found."
    lists = ["\n".join(lines) + "\n" for lines in _lists(tried) if lines[1:]]
    return "\n".join([_HEAD, f"{figures}\n", *lists]), f"mistakes, explored: {figures}"


def _lists(tried: list[Finding]) -> Iterator[list[str]]:
    found = [each for each in tried if each.by]
    yield ["Found:\n", *(f"- `{each.mutant}`: `{each.by}` in {_way(each)}" for each in found)]
    alive = [each for each in tried if not each.by]
    yield ["Not found:\n", *(f"- `{each.mutant}`, {each.ran} worlds" for each in alive)]


def _way(found: Finding) -> str:
    """Return the world, the number of steps if the property has a way, and the time."""
    return f"{found.why.partition(':')[0]}, {found.seconds:.1f} s"
