"""limit-job-size: the smallest and largest size of a job by queue (RFC 33, Limits Policy).

Cores and gpus are those of all slots. Without a node count, a job violates a limit of nodes if no
layout of its slots on the nodes of the instance is within the limits (readings: Limits on nodes).
Left out: the other cores and gpus of whole nodes, which only the scheduler knows.
"""

from __future__ import annotations

from typing import Final

from flux_trio import jobtap
from flux_trio.config import Limits
from flux_trio.formats import Jobspec, ResourceRequest, ResourceSet

_NO_LIMITS: Final = Limits()
_ANY_NODES: Final = (_NO_LIMITS.min.nnodes, _NO_LIMITS.max.nnodes)


def size_problem(
    jobspec: Jobspec, limits: Limits, queue: str | None, inventory: ResourceSet
) -> str | None:
    """Return the limit that a job violates, None if it violates no limit."""
    size: dict[str, int] = {"ncores": jobspec.ncores, "ngpus": jobspec.ngpus}
    if jobspec.nnodes is not None:
        size = {"nnodes": jobspec.nnodes, **size}
    where = f" for queue {queue}" if queue else ""
    for what, count in size.items():
        most = getattr(limits.max, what)
        if count > most:
            return f"requested {what} ({count}) exceeds policy limit of {most}{where}"
    for what, count in size.items():
        least = getattr(limits.min, what)
        if count < least:
            return f"requested {what} ({count}) is under policy limit of {least}{where}"
    if jobspec.nnodes is None and (problem := _layout_problem(jobspec, limits, inventory)):
        return f"{problem}{where}"
    return None


def _layout_problem(jobspec: Jobspec, limits: Limits, inventory: ResourceSet) -> str:
    least, most = limits.min.nnodes, limits.max.nnodes
    found = node_counts(jobspec.request, inventory) if (least, most) != _ANY_NODES else None
    if found is None or (found[0] <= most and found[1] >= least):
        return ""
    if found[0] > most:
        return f"requested slots need {found[0]} nodes, which exceeds policy limit of {most}"
    return f"requested slots fit on at most {found[1]} nodes, under policy limit of {least}"


def node_counts(request: ResourceRequest, inventory: ResourceSet) -> tuple[int, int] | None:
    """Return the fewest and the most nodes on which the slots fit; None if they do not fit."""
    room: list[tuple[int, int]] = []  # slots that fit on a node, and how many such nodes there are
    for ranks, cores, gpus in inventory.groups:
        pairs = ((cores, request.cores_per_slot), (gpus, request.gpus_per_slot))
        fits = [there.bit_count() // wanted for there, wanted in pairs if wanted]
        room.append((min(fits, default=request.nslots), ranks.bit_count()))
    left, fewest = request.nslots, 0
    for slots, nodes in sorted(room, reverse=True):
        if slots and left:
            used = min(nodes, -(-left // slots))
            left, fewest = max(0, left - used * slots), fewest + used
    most = min(request.nslots, sum(nodes for slots, nodes in room if slots))
    return None if left else (fewest, most)


class LimitJobSize(jobtap.Plugin):
    """Refuses a job that is too big or too small for the limits; `inventory`: the instance's."""

    name = ".limit-job-size"

    def __init__(self, inventory: ResourceSet) -> None:
        self._inventory = inventory

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
        limits = self._limits.get(queue, _NO_LIMITS)
        problem = size_problem(job.jobspec, limits, queue, self._inventory)
        if problem is not None:
            raise jobtap.Reject(problem)


def _is_unlimited(limits: Limits) -> bool:
    return (limits.max, limits.min) == (_NO_LIMITS.max, _NO_LIMITS.min)
