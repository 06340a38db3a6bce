"""What a campaign of `flux-trio fuzz` has found and reached: as text, JSON and JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from flux_trio.cli.lab.fuzzing import Campaign
from flux_trio.cli.terminal.errors import print_text, write_text
from flux_trio.cli.terminal.events import json_text
from flux_trio.lab import SITUATIONS, SeedResult, all_faults, all_transitions
from flux_trio.lab.stories.outcome import property_of
from flux_trio.views import Case, junit_text, story_text

CHARS_MAX: Final = 100
"""A longer list of names is cut; JSON has all of them."""


def write_report(campaign: Campaign, junit: Path | None, *, as_json: bool) -> None:
    """Write the file `junit` and print the report; what cannot be written is an error of it."""
    with campaign.errors_kept():
        if junit is not None:
            write_text(junit, report_junit(campaign))
    with campaign.errors_kept():
        print_text(
            json_text(report_json(campaign)) if as_json else "\n".join(report_lines(campaign))
        )


def report_lines(campaign: Campaign) -> Iterator[str]:
    """Yield the stories, then the counts, then what was never reached."""
    for found in campaign.found:
        where = f"; see {found.directory}" if found.directory else ""
        yield f"seed {found.result.seed} breaks {found.result.broken}{where}"
        yield ""
        yield from story_text(found.story).splitlines()
        yield ""
    shown = {found.result.seed: found.result.broken for found in campaign.found}
    for result in campaign.broken:
        if result.seed not in shown:
            also = ", too" if result.broken in shown.values() else ""
            yield f"seed {result.seed} breaks {result.broken}{also}"
    yield (
        f"{campaign.nworlds:,} worlds, {campaign.nturns:,} turns, "
        f"{len(campaign.broken)} with a broken property"
    )
    if campaign.not_judged:
        yield f"a property raised in {len(campaign.not_judged):,} more, which were not judged"
    for found in campaign.found:
        if found.story.doubt:
            yield f"seed {found.result.seed}, {found.result.broken}: {found.story.doubt}"
        if found.limit:
            yield f"{found.limit}: the plan of seed {found.result.seed} may not be the smallest"
    if campaign.is_interrupted and campaign.next_seed != campaign.seeds.end:
        yield f"interrupted: seed {campaign.next_seed} and those after it were not played"
    yield from _reached_lines(campaign)


def _reached_lines(campaign: Campaign) -> Iterator[str]:
    reached, rows = campaign.reached, all_transitions()
    never = reached.never_taken()
    yield f"transitions taken: {len(rows) - len(never)} of {len(rows)}"
    for table in dict.fromkeys(row.partition(" ")[0] for row in rows):
        total = sum(row.startswith(f"{table} ") for row in rows)
        missing = [row.removeprefix(f"{table} ") for row in never if row.startswith(f"{table} ")]
        names = f"never: {_cut(missing)}" if missing else ""
        yield f"  {table:10} {total - len(missing):4} of {total:3}  {names}".rstrip()
    yield "faults: the worlds in which each struck, the transitions that these worlds took after it"
    nmissing = 0
    for fault in all_faults():
        missing = reached.never_after(fault)
        nmissing += len(missing)
        yield f"  {fault:22} {reached.struck[fault]:7,} {len(rows) - len(missing):5}"
    yield "situations: the worlds that drew each, those in which it occurred"
    for name in SITUATIONS:
        counts = campaign.situations
        yield f"  {name:54} {counts.drawn[name]:7,} {counts.occurred[name]:7,}"
    npairs = len(rows) * len(all_faults())
    yield f"transitions after each fault, never exercised: {nmissing:,} of {npairs:,}"


def _cut(names: Sequence[str]) -> str:
    text = ", ".join(names)
    return text if len(text) <= CHARS_MAX else f"{text[: CHARS_MAX - 3]}..."


def report_json(campaign: Campaign) -> dict[str, Any]:
    """Return everything, with the transitions that were never taken, alone and by fault."""
    reached = campaign.reached
    return {
        "seeds": [campaign.seeds.first, campaign.next_seed],
        "worlds": campaign.nworlds,
        "turns": campaign.nturns,
        "interrupted": campaign.is_interrupted,
        "broken": [_broken_json(each, campaign) for each in campaign.broken],
        "not_judged": [{"seed": each.seed, "raised": each.raised} for each in campaign.not_judged],
        "transitions": len(all_transitions()),
        "never_taken": reached.never_taken(),
        "reached": {
            name: {
                "drawn": campaign.situations.drawn[name],
                "occurred": campaign.situations.occurred[name],
            }
            for name in SITUATIONS
        },
        "faults": {
            fault: {"worlds": reached.struck[fault], "never_after": reached.never_after(fault)}
            for fault in all_faults()
        },
    }


def _broken_json(result: SeedResult, campaign: Campaign) -> dict[str, Any]:
    own = [each for each in campaign.found if each.result is result]
    return {
        "seed": result.seed,
        "property": result.broken,
        "problems": list(result.problems),
        "directory": str(own[0].directory) if own and own[0].directory else None,
        "doubt": own[0].story.doubt if own else "",
    }


def report_junit(campaign: Campaign) -> str:
    """Return a test case for each seed."""
    failures = {each.seed: _failure(each) for each in campaign.broken}
    failures |= {each.seed: each.raised for each in campaign.not_judged}
    cases = [
        Case(f"seed {seed}", failures.get(seed, ""))
        for seed in range(campaign.seeds.first, campaign.next_seed)
    ]
    return junit_text("flux-trio fuzz", [("flux-trio fuzz", cases)])


def _failure(result: SeedResult) -> str:
    """Return the problems; first those of the property that the seed is named for."""
    return "\n".join(sorted(result.problems, key=lambda each: property_of(each) != result.broken))
