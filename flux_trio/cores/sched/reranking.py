"""New priorities of jobs that wait, put into effect a slice a turn: others are served between.

What comes later about a job counts, and nothing is decided before all have their new places.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from flux_trio.cores.sched.context import Context
from flux_trio.cores.sched.granting import Grantings
from flux_trio.cores.state import Part
from flux_trio.formats.meanings import JobId
from flux_trio.protocols import AllocEvent, AllocState

SLICE_JOBS: Final = 4096
"""Jobs a turn: about 15 ms."""


class Reranking(Part):
    """Priorities that are to be given, by job id."""

    _priorities: dict[JobId, int]

    def __init__(self, context: Context, granting: Grantings) -> None:
        self._context = context
        self._granting = granting
        self._priorities = {}

    def add(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Job ids and their new priorities."""
        self._priorities.update(pairs)

    def forget(self, jobid: int) -> None:
        """The job is asked for anew, or no more: what was said before is past."""
        self._priorities.pop(jobid, None)

    def forget_all(self) -> None:
        """All jobs are told anew."""
        self._priorities.clear()

    def step(self) -> bool:
        """Give a slice of them; whether there are none left."""
        for jobid in list(islice(self._priorities, SLICE_JOBS)):
            priority = self._priorities.pop(jobid)
            state = self._context.allocs.step(jobid, AllocEvent.PRIORITIZE)
            if state is not AllocState.PENDING:
                continue  # ids without a pending request are ignored (RFC 27, Prioritize)
            self._context.schedule.prioritize(jobid, priority)
            if (one := self._granting.get(jobid)) is not None:
                one.job.priority = priority  # should it have to wait again
        return not self._priorities
