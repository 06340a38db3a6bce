"""alloc-check: no two jobs have the same cores or gpus, even if a plugin has given a job its R."""

from __future__ import annotations

from flux_trio import jobtap
from flux_trio.formats import ResourceSet


class AllocCheck(jobtap.Plugin):
    """Ends a job whose resources another job holds."""

    name = "alloc-check"

    def loaded(self) -> None:
        """Begin without held resources."""
        self._held: dict[int, ResourceSet] = {}

    @jobtap.enter(jobtap.State.RUN)
    def claim(self, job: jobtap.Job) -> None:
        """Keep the resources of the job, or end the job if another one holds some of them."""
        resources = ResourceSet.parse(job.R)
        if all(resources.is_disjoint(held) for held in self._held.values()):
            self._held[job.id] = resources
        else:
            job.raise_exception("alloc-check", 0, "resources already allocated")

    @jobtap.leave(jobtap.State.CLEANUP)
    def give_back(self, job: jobtap.Job) -> None:
        """Forget the resources of the job."""
        self._held.pop(job.id, None)
