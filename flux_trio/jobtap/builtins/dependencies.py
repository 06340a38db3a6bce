"""What the dependency schemes have in common."""

from __future__ import annotations

from flux_trio import jobtap


def is_satisfied(job: jobtap.Job, description: str) -> bool:
    """Whether an earlier life of the job manager saw the dependency satisfied.

    A job that is in DEPEND when its dependencies are asked about had all of them added before.
    """
    return job.state is jobtap.State.DEPEND and description not in job.dependencies
