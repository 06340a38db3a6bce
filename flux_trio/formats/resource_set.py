"""R version 1 (RFC 20): which cores and gpus of which ranks, a value with set operations.

`ResourceSet.parse` and `to_json` speak the RFC's JSON (`resource_json.py`); the algebra is in
`resource_ops.py`. Left out: what the opaque `scheduling` key means, and the general resource graph
of RFC 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

import msgspec

from flux_trio.formats import resource_json, resource_ops
from flux_trio.formats.errors import FormatError
from flux_trio.formats.hostlist import Hostlist
from flux_trio.formats.idset import Idset
from flux_trio.formats.resource_ops import Group, Groups


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ResourceSet:
    """Concrete resources: for each rank its host, cores and gpus, and for how long they are given.

    Compares by everything it holds. Set operations work core by core and gpu by gpu; their results
    keep the times and `scheduling` of the left side and drop `nslots`, which counted the slots of
    another set.
    """

    groups: Groups
    """Canonical: ranks with the same children together, in order of lowest rank."""
    hostnames: tuple[str, ...]
    """Host of each rank, in ascending order of ranks; several ranks may share one."""
    properties: Mapping[str, Idset] = field(default_factory=dict, hash=False)
    """Property name, literally with any `@suffix`, to the ranks that have it, at least one."""
    nslots: int | None = None
    """Slots of an allocation; None if this is not one."""
    starttime: float = 0.0
    """Seconds since the Unix epoch from which the set is valid; 0.0 = unset, any time."""
    expiration: float = 0.0
    """Seconds since the Unix epoch after which the set is invalid; 0.0 = unset, never."""
    scheduling: Mapping[str, object] | None = field(default=None, hash=False)
    """The scheduler's own data, carried along untouched."""

    def __post_init__(self) -> None:
        if self.nslots is not None and self.nslots < 1:
            raise FormatError("an integer of at least 1", self.nslots, "execution.nslots")
        if self.starttime and self.expiration and self.expiration <= self.starttime:
            expected = f"a time after starttime {self.starttime}"
            raise FormatError(expected, self.expiration, "execution.expiration")

    @classmethod
    def parse(cls, value: object, where: str = "") -> ResourceSet:
        """R from decoded JSON, or from bytes of JSON; FormatError with the field's path."""
        try:
            return cls(*resource_json.read(value))
        except FormatError as error:
            raise error.at(where) from None

    @classmethod
    def build(
        cls,
        entries: Iterable[tuple[int, int, int]],
        hostname_of: Callable[[int], str],
        *,
        properties: Mapping[str, Idset] | None = None,
        nslots: int | None = None,
        starttime: float = 0.0,
        expiration: float = 0.0,
        scheduling: Mapping[str, object] | None = None,
    ) -> ResourceSet:
        """The set of (rank, cores, gpus), the last two as bit sets, in any order.

        `properties` may be those of the whole inventory: they are reduced to the ranks at hand.
        """
        ranks_of: dict[tuple[int, int], list[int]] = {}
        for rank, cores, gpus in entries:
            ranks_of.setdefault((cores, gpus), []).append(rank)
        groups = resource_ops.canonical(
            Group(Idset.of(ranks).bits, *children) for children, ranks in ranks_of.items()
        )
        ranks = Idset.from_bits(resource_ops.all_ranks(groups))
        return cls(
            groups,
            tuple(map(hostname_of, ranks)),
            _reduced(properties, ranks) if properties else {},
            nslots,
            starttime,
            expiration,
            scheduling,
        )

    def to_json(self) -> dict[str, object]:
        """R as a JSON object in canonical form.

        ValueError if there is no rank, or a rank has gpus and no core: version 1 cannot say that.
        """
        return resource_json.write(
            resource_json.Parts(
                self.groups,
                self.hostnames,
                self.properties,
                self.nslots,
                self.starttime,
                self.expiration,
                self.scheduling,
            )
        )

    def summary(self) -> str:
        """Text such as `rank[0-1]/core[0-3],gpu0 rank2/core0`: the resource_summary annotation."""
        return " ".join([_summary(group) for group in self.groups])

    # What it holds

    @property
    def ranks(self) -> Idset:
        """The execution targets."""
        return Idset.from_bits(resource_ops.all_ranks(self.groups))

    @property
    def nnodes(self) -> int:
        """Number of ranks."""
        return len(self.hostnames)

    @property
    def ncores(self) -> int:
        """Number of cores on all ranks."""
        return sum([group.ranks.bit_count() * group.cores.bit_count() for group in self.groups])

    @property
    def ngpus(self) -> int:
        """Number of gpus on all ranks."""
        return sum([group.ranks.bit_count() * group.gpus.bit_count() for group in self.groups])

    @property
    def writer(self) -> str | None:
        """URI of who wrote `scheduling`; `fluxion` if unsaid; None without `scheduling`."""
        if self.scheduling is None:
            return None
        return str(self.scheduling.get("writer", resource_json.WRITER_DEFAULT))

    def __bool__(self) -> bool:
        return bool(self.groups)

    def cores(self, rank: int) -> Idset:
        """The cores of `rank`; empty if it is not in the set."""
        return Idset.from_bits(next((g.cores for g in self.groups if g.ranks >> rank & 1), 0))

    def gpus(self, rank: int) -> Idset:
        """The gpus of `rank`; empty if it is not in the set."""
        return Idset.from_bits(next((g.gpus for g in self.groups if g.ranks >> rank & 1), 0))

    @property
    def hosts(self) -> dict[int, str]:
        """Rank to host name, ascending; made anew for each call."""
        return dict(zip(self.ranks, self.hostnames, strict=True))

    def hostname(self, rank: int) -> str:
        """The host of `rank`; KeyError if it is not in the set."""
        ranks = self.ranks
        if rank not in ranks:
            raise KeyError(rank)
        return self.hostnames[(ranks.bits & ((1 << rank) - 1)).bit_count()]

    def ranks_of_hosts(self, hosts: Iterable[str]) -> Idset:
        """The ranks on any of `hosts`, such as a Hostlist; names not in the set have none."""
        wanted = set(hosts)
        return Idset.of([rank for rank, host in self.hosts.items() if host in wanted])

    def ranks_with_property(self, name: str) -> Idset:
        """The ranks to which the literal `name` applies; empty if there are none."""
        return self.properties.get(name, _NONE)

    # Set operations

    def union(self, other: ResourceSet) -> ResourceSet:
        """What is in either; ValueError if they name different hosts for one rank."""
        hosts = self.hosts
        for rank, host in other.hosts.items():
            if hosts.setdefault(rank, host) != host:
                raise ValueError(f"rank {rank} is {hosts[rank]} in one set and {host} in the other")
        names = [
            *self.properties,
            *(name for name in other.properties if name not in self.properties),
        ]
        return replace(
            self,
            groups=resource_ops.union(self.groups, other.groups),
            hostnames=tuple([hosts[rank] for rank in sorted(hosts)]),
            properties={
                name: self.ranks_with_property(name) | other.ranks_with_property(name)
                for name in names
            },
            nslots=None,
        )

    def intersection(self, other: ResourceSet) -> ResourceSet:
        """The cores and gpus that are in both."""
        return self._part(resource_ops.intersection(self.groups, other.groups))

    def difference(self, other: ResourceSet) -> ResourceSet:
        """The cores and gpus that are not in `other`; ranks with nothing left are gone."""
        return self._part(resource_ops.difference(self.groups, other.groups))

    def restrict(self, ranks: Idset) -> ResourceSet:
        return self._part(resource_ops.restrict(self.groups, ranks.bits))

    def without_ranks(self, ranks: Idset) -> ResourceSet:
        return self.restrict(self.ranks - ranks)

    def is_disjoint(self, other: ResourceSet) -> bool:
        """Whether no core and no gpu is in both."""
        return resource_ops.is_disjoint(self.groups, other.groups)

    def issubset(self, other: ResourceSet) -> bool:
        """Whether every core and gpu is also in `other`."""
        return resource_ops.is_subset(self.groups, other.groups)

    # Changed copies

    def rerank(self, hosts: Iterable[str] | None = None) -> ResourceSet:
        """The same resources under ranks 0..n-1, as a new instance on them needs (20.rerank.1).

        Ranks keep their order, or follow `hosts`, the hosts of the new ranks in order; ValueError
        if those are not the hosts of this set. Ranks of one host keep their order.
        """
        old = list(self.ranks) if hosts is None else self._ranks_in_order_of(list(hosts))
        new = {rank: index for index, rank in enumerate(old)}
        hostname = self.hosts
        return replace(
            self,
            groups=resource_ops.canonical(
                group._replace(ranks=_renumbered(group.ranks, new)) for group in self.groups
            ),
            hostnames=tuple([hostname[rank] for rank in old]),
            properties={
                name: Idset.from_bits(_renumbered(ids.bits, new))
                for name, ids in self.properties.items()
            },
        )

    def with_times(self, starttime: float, expiration: float) -> ResourceSet:
        """The same resources for another time; seconds since the Unix epoch, 0.0 = unset."""
        return replace(self, starttime=starttime, expiration=expiration)

    def with_nslots(self, nslots: int | None) -> ResourceSet:
        """The same resources as an allocation of `nslots` slots, or as none."""
        return replace(self, nslots=nslots)

    def with_scheduling(self, scheduling: Mapping[str, object] | None) -> ResourceSet:
        """The same resources with other data of the scheduler, or without."""
        return replace(self, scheduling=scheduling)

    def _part(self, groups: Groups) -> ResourceSet:
        """The rest of it, when only `groups` are left."""
        ranks = Idset.from_bits(resource_ops.all_ranks(groups))
        if len(ranks) == self.nnodes:
            return replace(self, groups=groups, nslots=None)
        kept = set(ranks)
        return replace(
            self,
            groups=groups,
            hostnames=tuple([host for rank, host in self.hosts.items() if rank in kept]),
            properties=_reduced(self.properties, ranks),
            nslots=None,
        )

    def _ranks_in_order_of(self, hosts: list[str]) -> list[int]:
        if len(hosts) != self.nnodes:
            raise ValueError(f"expected {self.nnodes} hosts, one for each rank, got {len(hosts)}")
        ranks_on: dict[str, list[int]] = {}
        for rank, host in reversed(self.hosts.items()):
            ranks_on.setdefault(host, []).append(rank)
        try:
            return [ranks_on[host].pop() for host in hosts]
        except (KeyError, IndexError):
            expected = Hostlist.of(self.hostnames)
            raise ValueError(f"expected the hosts {expected} in any order") from None


_parsed: WeakValueDictionary[str, ResourceSet] = WeakValueDictionary()


def format_r(resources: ResourceSet) -> str:
    """The text of R as it is stored; ValueError as by `to_json`."""
    return _encode(resources.to_json()).decode()


def parse_r(text: str) -> ResourceSet:
    """R as it is stored, from its text; FormatError with the field's path from `R` on.

    A set that was parsed from the same text, and that somebody still holds, is returned again.
    """
    resources = _parsed.get(text)
    if resources is None:
        resources = _parsed[text] = ResourceSet.parse(text.encode(), "R")
    return resources


_encode = msgspec.json.Encoder().encode
_NONE = Idset.of(())


def _reduced(properties: Mapping[str, Idset], ranks: Idset) -> dict[str, Idset]:
    """The properties of `ranks`, without names that apply to none of them."""
    return {name: both for name, ids in properties.items() if (both := ids & ranks)}


def _renumbered(ranks: int, new: Mapping[int, int]) -> int:
    return Idset.of([new[rank] for rank in Idset.from_bits(ranks)]).bits


def _summary(group: Group) -> str:
    kinds = (("core", group.cores), ("gpu", group.gpus))
    children = [f"{kind}{Idset.from_bits(ids).brackets()}" for kind, ids in kinds if ids]
    return f"rank{Idset.from_bits(group.ranks).brackets()}/{','.join(children)}"
