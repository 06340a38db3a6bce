"""Explores worlds, each in a process of its own, and keeps what was found of each."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Final

from flux_trio.lab import Plan
from flux_trio.views import story_text
from tests.explore.search import Broken, Report, Search, tell_path
from tests.planter.findings import Finding, Findings

SECONDS_MAX: Final = 600.0
"""The most seconds of a processor in which a world that comes with flux-trio is explored."""
MEMORY_MAX: Final = 4 << 30
TOLD_EVERY_S: Final = 10.0
MIB: Final = 1 << 20


def explore_all(
    plans: Mapping[str, Plan], findings: Findings, processes: int, say: Callable[[str], None]
) -> list[Finding]:
    """Explore the worlds of `plans` that `findings` does not have yet; return what was found in all
    of them.

    `by` of a finding is what is wrong with the world, empty if nothing is; `ran` counts its states.
    """
    left = [name for name in plans if findings.latest(name) is None]
    context = multiprocessing.get_context("spawn")  # one task each: memory is that of its world
    with ProcessPoolExecutor(processes, context, max_tasks_per_child=1) as pool:
        futures = [pool.submit(explore_one, name, plans[name]) for name in left]
        try:
            for future in as_completed(futures):
                finding = future.result()
                if finding is None:  # an interrupt for all processes has ended this one first
                    raise KeyboardInterrupt
                findings.add(finding)
                say(_line(finding))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    found = {name: finding for name in plans if (finding := findings.latest(name))}
    for name, finding in found.items():
        if name not in left:
            say(f"{_line(finding)} (found by an earlier run)")
    return list(found.values())


def _line(finding: Finding) -> str:
    return f"{finding.mutant}: {finding.by or 'clean'}; {finding.why}"


def explore_one(name: str, plan: Plan) -> Finding | None:
    """Explore the world of a plan with the states of the rules; None if it was interrupted."""
    told = time.monotonic()

    def tell(report: Report) -> None:
        nonlocal told
        if time.monotonic() - told >= TOLD_EVERY_S:
            told = time.monotonic()
            print(
                f"{name}: depth {report.depth}, {report.nstates:,} states, "
                f"{report.nwaiting:,} of them to follow, {report.rate:,.0f} transitions/s, "
                f"{report.memory // MIB:,} MiB",
                flush=True,
            )

    report = Search(plan, with_rules=True).run(tell=tell)
    if not report.is_complete and report.broken is None:
        return None
    if report.broken is not None:
        print(broken_text(plan, report.broken), flush=True)
    figures = ", ".join(count_lines(report))
    return Finding(name, wrong_with(report), figures, report.nstates, round(report.seconds, 1))


def wrong_with(report: Report) -> str:
    """Return what an exploration has found to be wrong with a world; "" if nothing."""
    if report.broken is not None:
        return f"{report.broken.name} is broken: {report.broken.found}"
    if report.seconds > SECONDS_MAX:
        return f"it takes more than {SECONDS_MAX:g} s"
    if report.memory > MEMORY_MAX:
        return f"it takes more than {MEMORY_MAX // MIB:,} MiB"
    return ""


def broken_text(plan: Plan, broken: Broken) -> str:
    """Return the name of what is broken, with the story of a shortest path to it."""
    steps = f"{len(broken.path)} steps" if len(broken.path) != 1 else "1 step"
    story = story_text(tell_path(plan, broken))
    return f"{broken.name} is broken after {steps}: {broken.found}\n\n{story}"


def count_lines(report: Report) -> Iterator[str]:
    """Yield lines about how many states and transitions were met, and in which time."""
    yield (
        f"{report.nstates:,} states, {report.ntransitions:,} transitions, depth {report.depth}, "
        f"{report.nrest:,} states at rest"
    )
    yield (
        f"{report.seconds:.1f} s of the processor, {report.rate:,.0f} transitions/s, "
        f"{report.memory // MIB:,} MiB"
    )
