"""limit-duration: a job may not ask for more time than its queue allows (RFC 33, Limits Policy).

A job without a duration asks for no end, and exceeds every limit.
"""

from __future__ import annotations

import math

from flux_trio import jobtap
from flux_trio.jobtap.builtins.durations import spell_duration


def excess(duration: float, limit: float, queue: str | None) -> str | None:
    """Return why `duration` (0.0: no end) exceeds `limit`, both in seconds; None if it does not."""
    if limit == math.inf or 0 < duration <= limit:
        return None
    requested = spell_duration(duration) if duration else "unlimited"
    where = f" for queue {queue}" if queue else ""
    limited = spell_duration(limit)
    return f"requested duration ({requested}) exceeds policy limit of {limited}{where}"


class LimitDuration(jobtap.Plugin):
    """Refuses a job that asks for too much time."""

    name = ".limit-duration"

    @jobtap.on("conf.update")
    def configure(self, config: jobtap.Config) -> None:
        """Read the limit of each queue."""
        queues = (None, *config.queues)
        self._limits = {queue: config.policy_for(queue).limits.duration for queue in queues}
        self.listen("job.validate", wanted=min(self._limits.values()) < math.inf)

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        """Refuse a duration beyond the limit."""
        queue = job.jobspec.queue
        problem = excess(job.jobspec.duration, self._limits.get(queue, math.inf), queue)
        if problem is not None:
            raise jobtap.Reject(problem)
