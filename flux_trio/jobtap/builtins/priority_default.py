"""priority-default: the priority of a job is its urgency, unless another plugin decides."""

from __future__ import annotations

from flux_trio import jobtap


class PriorityDefault(jobtap.Plugin):
    """Is asked first, so that the priority of any other plugin overwrites this one."""

    name = ".priority-default"

    @jobtap.on("job.state.priority", "job.priority.get")
    def priority(self, job: jobtap.Job) -> int:
        """Return the urgency."""
        return job.urgency

    @jobtap.on_many("job.priority.get")
    def priorities(self, jobs: list[jobtap.Job]) -> list[int]:
        """Return the urgencies."""
        return [job.urgency for job in jobs]

    @jobtap.on("job.explain")
    def explain(self, _job: jobtap.Job) -> str:
        """Say where the priority comes from."""
        return "the urgency"
