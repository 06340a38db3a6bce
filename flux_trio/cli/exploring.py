"""The search of `flux-trio explore`, its progress and its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from flux_trio.cli.errors import CommandError
from flux_trio.cli.story_files import write_story_files
from flux_trio.explore import Report, Search, UnsuitablePlan, tell_path
from flux_trio.faults.plan import Plan
from flux_trio.views import story_text

MIB: Final = 1 << 20


class NotExplored(CommandError):
    """The plan has something that is not explored."""

    exit_code = 2


def run_search(plan: Plan, *, states_max: int | None, with_rules: bool) -> Report:
    """Explore the world of `plan`."""
    try:
        search = Search(plan, with_rules=with_rules)
    except UnsuitablePlan as error:
        raise NotExplored(str(error)) from None
    with _progress() as progress:
        return search.run(states_max, progress)


class NotPrinted(CommandError):
    """The report cannot be printed, and nothing is broken."""

    exit_code = 2


@contextmanager
def written_story(report: Report, output: Path) -> Iterator[Path | None]:
    """Write the story of what is broken into the directory `output`, and yield the directory.

    Yields None if nothing is broken, or if the story cannot be written. Then CommandError is raised
    at the end of the block, so that the report is not lost.
    """
    if report.broken is None:
        yield None
        return
    try:
        write_story_files(output, report.plan, tell_path(report.plan, report.broken))
    except CommandError:
        yield None
        raise
    yield output


def report_lines(report: Report, directory: Path | None) -> Iterator[str]:
    """Yield what is broken, with the story, and the counts."""
    broken = report.broken
    if broken is not None:
        steps = f"{len(broken.path)} steps" if len(broken.path) != 1 else "1 step"
        where = f"; see {directory}" if directory else ""
        yield f"{broken.name} is broken after {steps}: {broken.found}{where}"
        yield ""
        yield from story_text(tell_path(report.plan, broken)).splitlines()
        yield ""
    yield (
        f"{report.nstates:,} states, {report.ntransitions:,} transitions, depth {report.depth}, "
        f"{report.nrest:,} states at rest"
    )
    yield (
        f"{report.seconds:.1f} s of the processor, {report.rate:,.0f} transitions/s, "
        f"{report.memory // MIB:,} MiB"
    )
    if report.nbegun > 1:
        yield f"begun {report.nbegun} times, since rules compared what was not known before"
    if broken is None:
        what = "every state was met" if report.is_complete else "the search is not complete"
        yield f"{what}; no property was broken"


def report_json(report: Report, directory: Path | None) -> dict[str, Any]:
    """Return the counts, and what is broken."""
    broken = report.broken
    return {
        "states": report.nstates,
        "transitions": report.ntransitions,
        "depth": report.depth,
        "begun": report.nbegun,
        "at_rest": report.nrest,
        "seconds": round(report.seconds, 3),
        "rate": round(report.rate),
        "memory": report.memory,
        "complete": report.is_complete,
        "broken": None
        if broken is None
        else {
            "property": broken.name,
            "found": broken.found,
            "path": list(broken.path),
            "directory": str(directory) if directory else None,
        },
    }


@contextmanager
def _progress() -> Iterator[Callable[[Report], object]]:
    """Show the counts on standard error if it is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield lambda report: status.update(
            f"depth {report.depth}: {report.nstates:,} states, {report.nwaiting:,} of them to "
            f"follow, {report.ntransitions:,} transitions, {report.rate:,.0f}/s, "
            f"{report.memory // MIB:,} MiB"
        )
