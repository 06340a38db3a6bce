"""A process in which one mistake is planted: `python -m tests.planter.mistakes.shrinking`.

It reads a `Task` as JSON, plays its seeds until one breaks a property, makes the plan of that seed
small as `flux-trio fuzz` does, tells the story, and writes a `Shrunk` as JSON, or null if no seed
has broken a property.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass

import msgspec

from tests.planter.mistakes.worker import Task, plant
from tests.planter.mistakes.worlds import open_worlds


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
    from flux_trio.lab import shrink, tell_story
    from flux_trio.lab.plans.plan import Plan
    from flux_trio.lab.stories.campaign import Setup, breaks

    with open_worlds(task.worlds, task.files) as play:
        results = map(play, range(task.first, task.end))
        first = next((each for each in results if each.broken), None)
    if first is None:
        return None
    setup = Setup(plugins=first.plan.plugins)
    nruns = 0

    def breaks_too(plan: Plan) -> bool:
        nonlocal nruns
        nruns += 1
        return breaks(plan, first.broken, setup)

    begin = time.monotonic()
    small, _ = shrink(first.plan, first.broken, breaks_too)
    tell_story(small, first.broken, setup.all_properties())
    seconds = round(time.monotonic() - begin, 2)
    return Shrunk(first.broken, seconds, nruns, len(small.jobs), len(small.faults))


def main() -> None:
    task = msgspec.convert(json.load(sys.stdin), Task)
    plant(task.program)
    found = shrunk(task)
    print(json.dumps(found and asdict(found)))


if __name__ == "__main__":
    main()
