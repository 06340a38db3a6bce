"""A process in which one mistake is planted: `python -m tests.mistakes.shrinking`.

It reads a `Task` as JSON, plays its seeds until one breaks a property, makes the plan of that seed
small as `flux-trio fuzz` does, tells the story, and writes a `Shrunk` as JSON, or null if no seed
has broken a property.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass

from tests.mistakes.worker import Task, plant


@dataclass(frozen=True)
class Shrunk:
    """The smallest plan; `seconds` of wall-clock time from the first violation to the story."""

    broken: str
    seconds: float
    nruns: int
    njobs: int
    nfaults: int


def shrunk(task: Task) -> Shrunk | None:
    """Return what is left of the first seed that breaks a property."""
    from flux_trio.faults import run_plan, shrink, tell_story
    from flux_trio.faults.campaign import Setup, play_seed
    from flux_trio.faults.plan import Plan

    properties = Setup().all_properties()
    nruns = 0
    results = (play_seed(seed) for seed in range(task.first, task.end))
    first = next((each for each in results if each.broken), None)
    if first is None:
        return None

    def breaks(plan: Plan) -> bool:
        nonlocal nruns
        nruns += 1
        return first.broken in run_plan(plan, properties=properties).broken

    begin = time.monotonic()
    small = shrink(first.plan, first.broken, breaks)
    tell_story(small, first.broken, properties)
    seconds = round(time.monotonic() - begin, 2)
    return Shrunk(first.broken, seconds, nruns, len(small.jobs), len(small.faults))


def main() -> None:
    task = Task(**json.load(sys.stdin))
    plant(task.files)
    found = shrunk(task)
    print(json.dumps(found and asdict(found)))


if __name__ == "__main__":
    main()
