"""submit-hold: every new job is held until a user sets its urgency."""

from __future__ import annotations

from flux_trio import jobtap
from flux_trio.protocols import URGENCY_HOLD, JobEvent


class SubmitHold(jobtap.Plugin):
    """Sets the urgency of each job that comes to DEPEND to 0."""

    name = "submit-hold"

    @jobtap.on("job.state.depend")
    def hold(self, job: jobtap.Job) -> None:
        """Set the urgency in the owner's name."""
        if job.urgency != URGENCY_HOLD:
            job.post(JobEvent.URGENCY, {"userid": self.owner, "urgency": URGENCY_HOLD})
