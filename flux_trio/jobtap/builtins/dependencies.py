"""What the dependency schemes have in common."""

from __future__ import annotations

from flux_trio import jobtap


def hold(job: jobtap.Job, description: str) -> bool:
    """Add a dependency that is open until it is removed; False when it was satisfied before.

    It was when the jobspec names it twice, or when an earlier life of the job manager saw to it.
    """
    try:
        job.add_dependency(description)
    except jobtap.NotAllowed:  # a description counts once in the life of a job
        return False
    return True
