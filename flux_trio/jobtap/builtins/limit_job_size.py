"""limit-job-size: the smallest and largest size of a job by queue (RFC 33, Limits Policy).

Nodes count if the jobspec requests them; cores and gpus are those of all slots. Left out: the other
cores and gpus of whole nodes, which only the scheduler knows.
"""

from __future__ import annotations

from typing import Final

from flux_trio import jobtap
from flux_trio.config import JobSize, Limits
from flux_trio.formats import Jobspec

_NO_LIMITS: Final = Limits()


def size_problem(jobspec: Jobspec, limits: Limits, queue: str | None) -> str | None:
    """Return the limit that a job violates, None if it violates no limit."""
    size = JobSize(jobspec.nnodes or 0, jobspec.ncores, jobspec.ngpus)
    where = f" for queue {queue}" if queue else ""
    for what in JobSize.__struct_fields__:
        count, most = getattr(size, what), getattr(limits.max, what)
        if count > most:
            return f"requested {what} ({count}) exceeds policy limit of {most}{where}"
    for what in JobSize.__struct_fields__:
        count, least = getattr(size, what), getattr(limits.min, what)
        if count < least:
            return f"requested {what} ({count}) is under policy limit of {least}{where}"
    return None


class LimitJobSize(jobtap.Plugin):
    """Refuses a job that is too big or too small."""

    name = ".limit-job-size"

    @jobtap.on("conf.update")
    def configure(self, config: jobtap.Config) -> None:
        """Read the limits of each queue."""
        self._limits = {
            queue: limits
            for queue in (None, *config.queues)
            if not _is_unlimited(limits := config.policy_for(queue).limits)
        }
        self.listen("job.validate", wanted=bool(self._limits))

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        """Refuse a job whose size violates a limit."""
        queue = job.jobspec.queue
        problem = size_problem(job.jobspec, self._limits.get(queue, _NO_LIMITS), queue)
        if problem is not None:
            raise jobtap.Reject(problem)


def _is_unlimited(limits: Limits) -> bool:
    return (limits.max, limits.min) == (_NO_LIMITS.max, _NO_LIMITS.min)
