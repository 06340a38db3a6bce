"""alloc-bypass: a job that names its resources itself, `attributes.system.alloc-bypass.R`.

The scheduler is not asked and does not know of such a job, so only the instance owner may submit
it.
"""

from __future__ import annotations

from typing import Any

from flux_trio import jobtap
from flux_trio.formats import FormatError, ResourceSet

FLAG = "alloc-bypass"


class AllocBypass(jobtap.Plugin):
    """Runs a job on the R in its jobspec."""

    name = "alloc-bypass"

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        """Refuse the job of a guest, and a malformed R."""
        brought = _resources_of(job)
        if brought is None:
            return
        if job.userid != self.owner:
            raise jobtap.Reject("Guest user cannot use alloc bypass")
        try:
            ResourceSet.parse(brought)
        except FormatError as error:
            raise jobtap.Reject(f"alloc-bypass: invalid R: {error}") from None
        if job.state is jobtap.State.NEW:  # else an update is validated
            job.set_flag(FLAG)

    @jobtap.on("job.state.sched")
    def allocate(self, job: jobtap.Job) -> None:
        brought = _resources_of(job)
        if brought is not None:
            job.allocate(brought)


def _resources_of(job: jobtap.Job) -> Any:
    return job.jobspec.attribute("system.alloc-bypass.R")
