"""The part that all plugins for dependency schemes use."""

from __future__ import annotations

from flux_trio import jobtap


def hold(job: jobtap.Job, description: str) -> bool:
    """Add a dependency; return False if it was satisfied before.

    It was when the jobspec names it twice, or when an earlier life of the job manager saw to it.
    """
    try:
        job.add_dependency(description)
    except jobtap.NotAllowed:  # a description counts once in the life of a job
        return False
    return True
