"""priority-default: the priority of a job that nothing else decides about is its urgency."""

from __future__ import annotations

from flux_trio import jobtap


class PriorityDefault(jobtap.Plugin):
    """Answers first, so that any other plugin's priority overwrites this one."""

    name = ".priority-default"

    @jobtap.on("job.state.priority", "job.priority.get")
    def priority(self, job: jobtap.Job) -> int:
        """The urgency, as it is."""
        return job.urgency
