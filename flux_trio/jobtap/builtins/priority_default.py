"""The priority of a job that nothing else decides about: its urgency."""

from __future__ import annotations

from flux_trio.jobtap.decorators import on
from flux_trio.jobtap.job import Job
from flux_trio.jobtap.plugin import Plugin
from flux_trio.protocols import PRIORITY_GET, STATE_TOPICS, JobState


class PriorityDefault(Plugin):
    """A job's priority is its urgency."""

    name = ".priority-default"

    @on(STATE_TOPICS[JobState.PRIORITY], PRIORITY_GET)
    def priority(self, job: Job) -> int:
        """The urgency, as it is."""
        return job.urgency
