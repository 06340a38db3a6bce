"""`flux-trio explore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flux_trio.cli.fuzz_params import OutputDirectoryParam

if TYPE_CHECKING:
    from flux_trio.faults import Plan

BROKEN = 1
INCOMPLETE = 3


@click.command()
@click.argument("source", metavar="WORLD|PLAN", required=False)
@click.option("--list", "lists", is_flag=True, help="List the worlds that come with flux-trio.")
@click.option(
    "--max-states",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop when N states are met. Default: no limit.",
)
@click.option(
    "--world-only",
    is_flag=True,
    help="Do not follow a state of the world again if only the states of the rules differ.",
)
@click.option(
    "--output",
    type=OutputDirectoryParam(),
    default=Path("explore"),
    show_default=True,
    metavar="DIR",
    help="Directory for the story of what was broken.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def explore(
    ctx: click.Context,
    *,
    source: str | None,
    lists: bool,
    max_states: int | None,
    world_only: bool,
    output: Path,
    as_json: bool,
) -> None:
    """Explore every interleaving of a small world.

    WORLD is the name of a world that comes with flux-trio. PLAN is a file as `flux-trio fuzz`
    writes it; its times do not count, and its faults must be crashes, returns and unloads of sched,
    job-exec and resource, which strike at every moment. It must have no files of plugins.

    The search goes breadth first over all that may happen next: a core takes one message or one
    timer, or a fault strikes. Each clause of the RFCs must hold in each transition. When nothing is
    left to happen, each job must be INACTIVE and its eventlog whole, no job may have started twice,
    and each request must be answered. If a property is broken, the shortest way there is written:
    plan.toml, story.txt and story.html.

    Ctrl-C ends the search with a report of what was met by then.

    Exit codes: 0 if all states were met and every property held, 1 if one was broken, 2 if there is
    no such world or plan, if DIR cannot be made, if the report cannot be printed or for wrong
    usage, 3 if the search ended before all states were met.
    """
    from flux_trio.cli.errors import CommandError, print_text
    from flux_trio.cli.events import json_text
    from flux_trio.cli.exploring import (
        NotPrinted,
        report_json,
        report_lines,
        run_search,
        written_story,
    )
    from flux_trio.explore import WORLDS

    if lists:
        for name in WORLDS:
            click.echo(name)
        return
    if source is None:
        raise click.UsageError("Missing argument 'WORLD|PLAN'.")
    plan = _plan_of(source)
    report = run_search(plan, states_max=max_states, with_rules=not world_only)
    with written_story(report, output / Path(source).stem) as directory:
        print_text(
            json_text(report_json(report, directory))
            if as_json
            else "\n".join(report_lines(report, directory)),
            NotPrinted if report.broken is None else CommandError,
        )
    if report.broken is not None:
        ctx.exit(BROKEN)
    ctx.exit(0 if report.is_complete else INCOMPLETE)


def _plan_of(source: str) -> Plan:
    """Return the plan of a world, by its name or in a file."""
    from flux_trio.cli.replaying import NoPlan, read_plan
    from flux_trio.explore import WORLDS

    if source in WORLDS:
        return WORLDS[source]
    if not Path(source).exists():
        names = ", ".join(WORLDS)
        raise NoPlan(f"expected a file or one of the worlds {names}, got {source}")
    return read_plan(source, expected="a plan as TOML")
