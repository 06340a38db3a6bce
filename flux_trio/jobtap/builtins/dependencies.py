"""The part that all plugins for dependency schemes use."""

from __future__ import annotations

from flux_trio import jobtap


def hold(job: jobtap.Job, description: str) -> bool:
    """Add a dependency; return False if it was satisfied before.

    That is so if an earlier entry of the jobspec has the same description, or if the dependency was
    removed before a restart of the job manager.
    """
    try:
        job.add_dependency(description)
    except jobtap.NotAllowed:  # a description counts once in the life of a job
        return False
    return True
