"""Who holds what, so that no two jobs are ever given the same cores or gpus.

RFC 27 leaves the choice to the scheduler; what it chose is R (RFC 20). A job holds its R from
SUCCESS until sched.free is sent, since the scheduler may give the same to others as soon as that
comes (27.free.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from flux_trio.cores.state import Part
from flux_trio.formats import Idset, ResourceSet
from flux_trio.formats.meanings import JobId

PLANES_KEPT: Final = 1024  # by what jobs are given of a node: most are given the same


class Allocated(Part):
    """For each core and gpu the ranks on which it is taken: a look costs little with many nodes."""

    taken: dict[int, int]  # see `_planes`
    holders: dict[JobId, ResourceSet]
    overlaps: bool  # two jobs hold the same, as an earlier life has left it

    def __init__(self) -> None:
        self.taken = {}
        self.holders = {}
        self.overlaps = False

    def refill(self, holders: Iterable[tuple[int, ResourceSet]]) -> None:
        """Forget all; these hold something, and may share it."""
        self.taken, self.holders, self.overlaps = {}, {}, False
        for jobid, resources in holders:
            self.take(jobid, resources)

    def shared(self, resources: ResourceSet) -> tuple[int, ResourceSet] | None:
        """A job that holds some of `resources`, and which; None when nobody does."""
        taken = self.taken.get
        if not any(taken(plane, 0) & ranks for plane, ranks in _planes(resources)):
            return None  # as nearly always: without a look at every job
        for jobid, held in self.holders.items():
            both = resources.intersection(held)
            if both:
                return jobid, both
        return None

    def take(self, jobid: int, resources: ResourceSet) -> None:
        """The job holds `resources`."""
        taken = self.taken
        for plane, ranks in _planes(resources):
            before = taken.get(plane, 0)
            if before & ranks:
                self.overlaps = True
            taken[plane] = before | ranks
        self.holders[jobid] = resources

    def give_back(self, jobid: int) -> None:
        """The job holds nothing; one that held nothing changes nothing."""
        resources = self.holders.pop(jobid, None)
        if resources is None:
            return
        if self.overlaps:
            self.refill(list(self.holders.items()))
            return
        taken = self.taken
        for plane, ranks in _planes(resources):
            taken[plane] &= ~ranks

    def total(self) -> ResourceSet | None:
        """All that is held, without times and properties; None if nothing is."""
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


def _planes(resources: ResourceSet) -> list[tuple[int, int]]:
    """Each core as its bit, and each gpu as less than nothing, with the ranks it is named of."""
    groups = resources.groups
    return [(plane, ranks) for ranks, cores, gpus in groups for plane in _of_node(cores, gpus)]


@lru_cache(maxsize=PLANES_KEPT)
def _of_node(cores: int, gpus: int) -> tuple[int, ...]:
    return (*_bits(cores), *(-gpu for gpu in _bits(gpus)))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        bit = mask & -mask
        yield bit
        mask ^= bit
