"""New priorities of waiting jobs. A turn applies a slice of them, so that others do not wait long.

The latest priority of a job counts. The policy decides again when all priorities are applied.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from flux_trio.cores.pages import page_size
from flux_trio.cores.sched.context import Context
from flux_trio.cores.sched.granting import Grantings
from flux_trio.cores.state import Part
from flux_trio.formats.meanings import JobId
from flux_trio.protocols import AllocEvent, AllocState

SLICE_JOBS: Final = 4096
"""Jobs in a turn: about 15 ms."""

_PRIORITIZE: Final = AllocEvent.PRIORITIZE  # looked up once, since a request may name all jobs
_PENDING: Final = AllocState.PENDING


class Reranking(Part):
    """The priorities that are to be applied, by job id."""

    _priorities: dict[JobId, int]

    def __init__(self, context: Context, granting: Grantings) -> None:
        self._context = context
        self._granting = granting
        self._priorities = {}

    def add(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Take job ids and their new priorities."""
        self._priorities.update(pairs)

    def forget(self, jobid: int) -> None:
        """Forget the priority of a job whose request has ended or was sent again."""
        self._priorities.pop(jobid, None)

    def forget_all(self) -> None:
        """Forget all priorities: the job manager sends its requests again."""
        self._priorities.clear()

    def step(self) -> bool:
        """Apply a slice of the priorities; return whether all are applied."""
        for jobid in list(islice(self._priorities, page_size(SLICE_JOBS))):
            priority = self._priorities.pop(jobid)
            state = self._context.allocs.step(jobid, _PRIORITIZE)
            if state is not _PENDING:
                continue  # ids without a pending request are ignored (RFC 27, Prioritize)
            self._context.schedule.prioritize(jobid, priority)
            if (one := self._granting.get(jobid)) is not None:
                one.job.priority = priority  # if its grant is revoked it waits again
        return not self._priorities
