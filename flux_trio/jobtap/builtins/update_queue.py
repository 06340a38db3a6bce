"""update-queue: moving a pending job to another queue (RFC 33, Queue Configuration).

The job loses the constraints that its queue gave it, whatever that queue requires now and whether
it is still there, and gets those of the new one. A job that was submitted with constraints cannot
be moved, as in flux-core. The job's user needs access to the new queue, unless the instance owner
requests the move.
"""

from __future__ import annotations

from typing import Any

from flux_trio import jobtap
from flux_trio.config import CONSTRAINTS_KEY, access_refusal, required_by
from flux_trio.messages import topics
from flux_trio.protocols import RUNNING


class UpdateQueue(jobtap.Plugin):
    """Decides on `attributes.system.queue`."""

    name = ".update-queue"

    @jobtap.on("job.update.attributes.system.queue")
    async def update(self, job: jobtap.Job, update: jobtap.UpdateAsked) -> jobtap.UpdateAllowed:
        """Allow a queue that is enabled and that the user may use."""
        name = update.value
        if not isinstance(name, str):
            raise jobtap.Reject(f"{update.key}: expected the name of a queue, got {name!r}")
        if job.state & RUNNING:
            raise jobtap.Reject("update of queue for running job not supported")
        if name == job.jobspec.queue:
            raise jobtap.Reject(f"job queue is already set to {name}")
        await self._check_takes_jobs(name)
        if not update.is_owner:
            await self._check_access(job, name)
        return jobtap.UpdateAllowed(updates=self._constraints(job, name))

    async def _check_takes_jobs(self, name: str) -> None:
        try:
            status = await self.rpc(topics.JOB_QUEUE_STATUS, {"name": name})
        except jobtap.FluxError as error:
            raise jobtap.Reject(error.text) from None
        if not status["enable"]:
            raise jobtap.Reject(f"queue {name} is currently disabled")

    async def _check_access(self, job: jobtap.Job, name: str) -> None:
        if self.config.policy_for(name).access.is_open:
            return
        user = await self.users(job.userid)
        refusal = access_refusal(self.config, name, job.userid, user.name, user.groups)
        if refusal is not None:
            raise jobtap.Reject(refusal)

    def _constraints(self, job: jobtap.Job, name: str) -> dict[str, Any]:
        """Return the update of the job's constraints that the new queue needs, if any."""
        if job.submitted_jobspec.attribute("system.constraints"):
            text = f"job appears to have non-queue constraints, unable to update queue to {name}"
            raise jobtap.Reject(text)
        now = job.jobspec.attribute("system.constraints")
        wanted = required_by(self.config, name, None)
        return {} if wanted == (now or None) else {CONSTRAINTS_KEY: wanted or {}}
