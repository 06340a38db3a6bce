"""A job's request (RFC 14), reduced to the needs of placement, and its allocation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from flux_trio.formats import (
    Constraint,
    Group,
    Groups,
    Idset,
    ResourceRequest,
    ResourceSet,
    difference,
    intersection,
    union,
)
from flux_trio.policies.bits import ranks_of


class Children(NamedTuple):
    """Cores and gpus of one rank, as bit sets."""

    cores: int
    gpus: int


NOTHING = Children(0, 0)


class Shape(msgspec.Struct, frozen=True, cache_hash=True):
    """A number of equal units: nodes if the job requested nodes, slots otherwise.

    Shapes are compared by value, so that no decision depends on which jobs share an object. Jobs
    with the same request should share one: policies look shapes up often, and find the same object
    fastest.
    """

    count: int
    """Number of units."""
    cores: int
    """Cores of one unit, at least 1: R cannot name a rank without a core (RFC 20)."""
    gpus: int
    """Gpus of one unit."""
    by_node: bool
    """True: a unit is a node. False: a unit is a slot, and several may share a node."""
    whole: bool
    """The job gets whole nodes and shares them with no other job."""
    nslots: int
    """Total number of slots, as in R."""
    constraint: Constraint | None = None
    """Which ranks are acceptable (RFC 31); None for any."""

    @classmethod
    def of(cls, request: ResourceRequest, constraint: Constraint | None = None) -> Shape:
        count = request.nslots if request.nnodes is None else request.nnodes
        return cls(
            count=count,
            cores=max(1, -(-request.ncores // count)),
            gpus=-(-request.ngpus // count),
            by_node=request.nnodes is not None,
            whole=request.exclusive,
            nslots=request.nslots,
            constraint=constraint,
        )

    def describe(self) -> str:
        """Return text such as `2 whole nodes of at least 4 cores and 1 gpu`."""
        unit = _plural(
            self.count, ("whole node" if self.whole else "node") if self.by_node else "slot"
        )
        holds = [_plural(self.cores, "core"), *([_plural(self.gpus, "gpu")] if self.gpus else ())]
        what = " and ".join(holds)
        return f"{unit} of at least {what}" if self.whole else f"{unit} with {what} each"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Allocation(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Cores and gpus of ranks that one job has or shall get."""

    groups: Groups
    """Canonical as in ResourceSet: disjoint ranks, in order of lowest rank."""
    nslots: int
    """Total number of slots; 0 if not known."""

    @classmethod
    def of(cls, resources: ResourceSet) -> Allocation:
        return cls(resources.groups, resources.nslots or 0)

    @classmethod
    def of_parts(cls, ranks_with: Mapping[Children, int], nslots: int = 0) -> Allocation:
        """Build an allocation from children → ranks (a bit set) with these on each rank."""
        groups = [Group(ranks, *children) for children, ranks in ranks_with.items()]
        if len(groups) > 1:
            groups.sort(key=_lowest_rank)
        return cls(tuple(groups), nslots)

    @property
    def ranks(self) -> int:
        """Return all ranks, as a bit set."""
        ranks = 0
        for group in self.groups:
            ranks |= group.ranks
        return ranks

    def joined(self, groups: Groups) -> Allocation:
        """Return the allocation and `groups` together."""
        return Allocation(union(self.groups, groups), self.nslots)

    def common(self, groups: Groups) -> Allocation:
        """Return the part of the allocation that is in `groups`."""
        return Allocation(intersection(self.groups, groups), self.nslots)

    def without(self, groups: Groups) -> Allocation:
        """Return the part of the allocation that is not in `groups`."""
        return Allocation(difference(self.groups, groups), self.nslots)

    def resource_set(
        self,
        hosts: Mapping[int, str],
        properties: Mapping[str, Idset],
        starttime: float,
        expiration: float,
    ) -> ResourceSet:
        """Return R (RFC 20); `properties` may be those of the whole inventory."""
        mine = self.ranks
        return ResourceSet(
            self.groups,
            tuple([hosts[rank] for rank in ranks_of(mine)]),
            {
                name: Idset.from_bits(both)
                for name, ids in properties.items()
                if (both := ids.bits & mine)
            },
            self.nslots or None,
            starttime,
            expiration,
        )


def _lowest_rank(group: Group) -> int:
    return (group.ranks & -group.ranks).bit_length()
