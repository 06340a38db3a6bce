"""The cores and gpus that jobs hold, for finding a grant that overlaps with another job's.

RFC 27 leaves the choice to the scheduler; R has its choice (RFC 20). A job holds its R from SUCCESS
until sched.free is sent: the scheduler may grant the resources again when it gets that (27.free.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from flux_trio.cores.state import Part
from flux_trio.formats import Idset, ResourceSet
from flux_trio.formats.meanings import JobId

PLANES_KEPT: Final = 1024  # cached by the resources on a node: most jobs have the same


class Allocated(Part):
    """For each core and gpu, the ranks where a job holds it: cheap to look up on many nodes."""

    taken: dict[int, int]  # see `_planes`
    holders: dict[JobId, ResourceSet]
    overlaps: bool  # two jobs hold the same since before this start

    def __init__(self) -> None:
        self.taken = {}
        self.holders = {}
        self.overlaps = False

    def refill(self, holders: Iterable[tuple[int, ResourceSet]]) -> None:
        """Forget all and take the resources of `holders`, which may overlap."""
        self.taken, self.holders, self.overlaps = {}, {}, False
        for jobid, resources in holders:
            self.take(jobid, resources)

    def shared(self, resources: ResourceSet) -> tuple[int, ResourceSet] | None:
        """Return a job that holds some of `resources`, and which of them; None if all are free."""
        taken = self.taken.get
        for ranks, cores, gpus in resources.groups:
            for plane in _planes(cores, gpus):
                if taken(plane, 0) & ranks:
                    return self._holder_of(resources)
        return None  # the usual case: no need to look at every job

    def _holder_of(self, resources: ResourceSet) -> tuple[int, ResourceSet] | None:
        for jobid, held in self.holders.items():
            both = resources.intersection(held)
            if both:
                return jobid, both
        return None

    def take(self, jobid: int, resources: ResourceSet) -> None:
        """Let the job hold `resources`."""
        taken = self.taken
        for ranks, cores, gpus in resources.groups:
            for plane in _planes(cores, gpus):
                before = taken.get(plane, 0)
                if before & ranks:
                    self.overlaps = True
                taken[plane] = before | ranks
        self.holders[jobid] = resources

    def give_back(self, jobid: int) -> None:
        """Free the resources of the job, if it holds any."""
        resources = self.holders.pop(jobid, None)
        if resources is None:
            return
        if self.overlaps:
            self.refill(list(self.holders.items()))
            return
        taken = self.taken
        for ranks, cores, gpus in resources.groups:
            left = ~ranks
            for plane in _planes(cores, gpus):
                taken[plane] &= left

    def total(self) -> ResourceSet | None:
        """Return what jobs hold, without times and properties; None if they hold nothing."""
        taken: dict[int, tuple[int, int]] = {}
        hosts: dict[int, str] = {}
        for resources in self.holders.values():
            hosts |= resources.hosts
            for group in resources.groups:
                for rank in Idset.from_bits(group.ranks):
                    cores, gpus = taken.get(rank, (0, 0))
                    taken[rank] = (cores | group.cores, gpus | group.gpus)
        if not taken:
            return None
        return ResourceSet.build([(rank, *held) for rank, held in taken.items()], hosts.__getitem__)


@lru_cache(maxsize=PLANES_KEPT)
def _planes(cores: int, gpus: int) -> tuple[int, ...]:
    """Return the planes of what a job has on a node: a core's bit, or minus a gpu's bit."""
    return (*_bits(cores), *(-gpu for gpu in _bits(gpus)))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        bit = mask & -mask
        yield bit
        mask ^= bit
