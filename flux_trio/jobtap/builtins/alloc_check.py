"""alloc-check: no two jobs ever have the same cores or gpus, whoever gave them."""

from __future__ import annotations

from flux_trio import jobtap
from flux_trio.formats import ResourceSet


class AllocCheck(jobtap.Plugin):
    """Ends a job that is given what another one has."""

    name = "alloc-check"

    def loaded(self) -> None:
        """Nobody has anything."""
        self._held: dict[int, ResourceSet] = {}

    @jobtap.enter(jobtap.State.RUN)
    def take(self, job: jobtap.Job) -> None:
        """Take note of what it has, if it alone has it."""
        resources = ResourceSet.parse(job.R)
        if all(resources.is_disjoint(held) for held in self._held.values()):
            self._held[job.id] = resources
        else:
            job.raise_exception("alloc-check", 0, "resources already allocated")

    @jobtap.leave(jobtap.State.CLEANUP)
    def give_back(self, job: jobtap.Job) -> None:
        """It has nothing any more."""
        self._held.pop(job.id, None)
