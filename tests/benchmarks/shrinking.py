"""From the first violation to the smallest story, for mistakes that are planted in the program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from statistics import median

import msgspec

from tests.benchmarks.measure import SMALL, Figure
from tests.planter.mistakes.entries import Mistake, mistakes
from tests.planter.mistakes.families import worlds_of
from tests.planter.mistakes.processes import ask
from tests.planter.mistakes.shrinking import Shrunk
from tests.planter.mistakes.worker import Task
from tests.planter.mistakes.worlds import PLAIN

EVERY = 4
"""One of so many mistakes is planted, of those that plain worlds at depth cores may show."""
SEEDS = 40
"""A mistake that the first seeds do not show is left out."""
JOBS, FAULTS = 3, 2


def shrinking() -> Iterator[Figure]:
    """Seconds and plans played, and how many stories are left with few jobs and faults."""
    planted = [each for each in mistakes() if worlds_of(each) == PLAIN]
    shown = (each for each in map(_shrunk, planted[::EVERY]) if each is not None)
    found = list(islice(shown, 1 if SMALL else None))
    count = len(found)
    yield Figure(median(each.seconds for each in found), "s, median", count)
    yield Figure(max(each.seconds for each in found), "s, longest", count)
    yield Figure(median(each.nruns for each in found), "plans played, median", count)
    yield Figure(max(each.nruns for each in found), "plans played, most", count)
    small = [each for each in found if each.njobs <= JOBS and each.nfaults <= FAULTS]
    yield Figure(len(small), f"plans of {JOBS} jobs and {FAULTS} faults at most", count)


def _shrunk(mistake: Mistake) -> Shrunk | None:
    answer = ask("tests.planter.mistakes.shrinking", asdict(Task(0, SEEDS, mistake.edited())))
    return msgspec.convert(answer, Shrunk | None)
