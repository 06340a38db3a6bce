"""What a job asks of the machine (RFC 14), reduced to what placement needs, and what it gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from flux_trio.formats import Constraint, Group, Idset, ResourceRequest, ResourceSet
from flux_trio.policies.bits import ranks_of


class Children(NamedTuple):
    """Cores and gpus of one rank, as bit sets."""

    cores: int
    gpus: int


NOTHING = Children(0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A number of equal units: nodes if nodes were asked for, slots otherwise.

    Jobs that ask for the same should share one object: what is learned about one then holds for
    all, by identity.
    """

    count: int
    """Units wanted."""
    cores: int
    """Cores of one unit, at least 1: R cannot name a rank without a core (RFC 20)."""
    gpus: int
    """Gpus of one unit."""
    by_node: bool
    """A unit is a node; otherwise a slot, and several may share a node."""
    whole: bool
    """Nodes are taken with all they have and shared with nobody."""
    nslots: int
    """Slots in all, as R says it."""
    constraint: Constraint | None = None
    """Which ranks will do (RFC 31); None for any."""

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
        """Words such as `2 whole nodes with at least 4 cores and 1 gpu each`."""
        unit = _plural(
            self.count, ("whole node" if self.whole else "node") if self.by_node else "slot"
        )
        holds = [_plural(self.cores, "core"), *([_plural(self.gpus, "gpu")] if self.gpus else ())]
        least = "at least " if self.whole else ""
        return f"{unit} with {least}{' and '.join(holds)} each"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """Cores and gpus of ranks that one job has, or is to have."""

    groups: tuple[Group, ...]
    """Canonical as in ResourceSet: disjoint ranks, in order of lowest rank."""
    nslots: int
    """Slots in all; 0 when whoever made it did not say."""

    @classmethod
    def of(cls, resources: ResourceSet) -> Allocation:
        """What R says was allocated."""
        return cls(resources.groups, resources.nslots or 0)

    @classmethod
    def of_parts(cls, ranks_with: Mapping[Children, int], nslots: int = 0) -> Allocation:
        """The same cores and gpus on each rank of a part: children → ranks, as a bit set."""
        groups = [Group(ranks, *children) for children, ranks in ranks_with.items()]
        if len(groups) > 1:
            groups.sort(key=_lowest_rank)
        return cls(tuple(groups), nslots)

    @property
    def ranks(self) -> int:
        """All ranks, as a bit set."""
        ranks = 0
        for group in self.groups:
            ranks |= group.ranks
        return ranks

    def resource_set(
        self,
        hosts: Mapping[int, str],
        properties: Mapping[str, Idset],
        starttime: float,
        expiration: float,
    ) -> ResourceSet:
        """R (RFC 20) of the allocation; `properties` may be those of the whole inventory."""
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
