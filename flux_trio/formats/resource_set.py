"""R version 1 (RFC 20): cores and gpus of ranks, as a value with set operations.

`ResourceSet.parse` and `to_json` convert from and to the RFC's JSON (`resource_json.py`); the
algebra is in `resource_ops.py`. Not covered: the contents of the opaque `scheduling` key, and the
general resource graph of RFC 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

import msgspec

from flux_trio.formats import resource_json, resource_ops
from flux_trio.formats.errors import FormatError
from flux_trio.formats.host_index import HostIndex
from flux_trio.formats.hostlist import Hostlist, HostRange
from flux_trio.formats.idset import Idset
from flux_trio.formats.meanings import Time
from flux_trio.formats.resource_ops import Group, Groups


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ResourceSet:
    """Concrete resources: the host, cores and gpus of each rank, and the time they are valid.

    Sets compare by all fields. Set operations work on single cores and gpus. Their results keep the
    times and `scheduling` of the left operand and drop `nslots`, which counted the slots of another
    set.
    """

    groups: Groups
    """Canonical: one group for all ranks with the same children, in order of lowest rank."""
    hostnames: tuple[str, ...]
    """Host of each rank, in ascending order of ranks; several ranks may share a host."""
    properties: Mapping[str, Idset] = field(default_factory=dict, hash=False)
    """Literal property name, with any `@suffix`, to its ranks; at least one rank each."""
    nslots: int | None = None
    """Slots of an allocation; None if the set is not an allocation."""
    starttime: Time = 0.0
    """Seconds since the Unix epoch from which the set is valid; 0.0 = unset, any time."""
    expiration: Time = 0.0
    """Seconds since the Unix epoch after which the set is invalid; 0.0 = unset, never."""
    scheduling: Mapping[str, object] | None = field(default=None, hash=False)
    """The scheduler's own data, passed on unchanged."""

    def __post_init__(self) -> None:
        if self.nslots is not None and self.nslots < 1:
            raise FormatError("an integer of at least 1", self.nslots, "execution.nslots")
        if self.starttime and self.expiration and self.expiration <= self.starttime:
            expected = f"a time after starttime {self.starttime}"
            raise FormatError(expected, self.expiration, "execution.expiration")

    @classmethod
    def parse(cls, value: object, where: str = "", *, own_widths: bool = False) -> ResourceSet:
        """Parse R from decoded JSON or bytes of JSON; FormatError has the field's path.

        With `own_widths` hostlists are read as flux-core does (readings: Hostlist widths).
        """
        try:
            return cls(*resource_json.read(value, own_widths=own_widths))
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
        """Build a set from (rank, cores, gpus) in any order; cores and gpus are bit sets.

        `properties` may be those of the whole inventory; the set keeps those of its own ranks.
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
        """Return R as a JSON object in canonical form.

        ValueError if the set is empty or a rank has gpus but no core: version 1 cannot express it.
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
        """Return `rank[0-1]/core[0-3],gpu0 rank2/core0`: the resource_summary annotation."""
        return " ".join([_summary(group) for group in self.groups])

    # Contents

    @property
    def ranks(self) -> Idset:
        """Return the execution targets."""
        return Idset.from_bits(resource_ops.all_ranks(self.groups))

    @property
    def nnodes(self) -> int:
        return len(self.hostnames)

    @property
    def ncores(self) -> int:
        return sum([group.ranks.bit_count() * group.cores.bit_count() for group in self.groups])

    @property
    def ngpus(self) -> int:
        return sum([group.ranks.bit_count() * group.gpus.bit_count() for group in self.groups])

    @property
    def writer(self) -> str | None:
        """Return the URI of `scheduling`'s writer (default `fluxion`); None without one."""
        if self.scheduling is None:
            return None
        return str(self.scheduling.get("writer", resource_json.WRITER_DEFAULT))

    def __bool__(self) -> bool:
        return bool(self.groups)

    def cores(self, rank: int) -> Idset:
        """Return the cores of `rank`; empty if the set lacks the rank."""
        return Idset.from_bits(next((g.cores for g in self.groups if g.ranks >> rank & 1), 0))

    def gpus(self, rank: int) -> Idset:
        """Return the gpus of `rank`; empty if the set lacks the rank."""
        return Idset.from_bits(next((g.gpus for g in self.groups if g.ranks >> rank & 1), 0))

    @property
    def hosts(self) -> dict[int, str]:
        """Return rank -> host name, in ascending order; a new dict on each access."""
        return dict(zip(self.ranks, self.hostnames, strict=True))

    def hostname(self, rank: int) -> str:
        """Return the host of `rank`; KeyError if the set lacks the rank."""
        ranks = self.ranks
        if rank not in ranks:
            raise KeyError(rank)
        return self.hostnames[(ranks.bits & ((1 << rank) - 1)).bit_count()]

    def ranks_of_hosts(self, hosts: Iterable[str]) -> Idset:
        """Return the ranks on any of `hosts`; unknown hosts are ignored."""
        wanted = set(hosts)
        return Idset.of([rank for rank, host in self.hosts.items() if host in wanted])

    def ranks_with_property(self, name: str) -> Idset:
        """Return the ranks with the literal property `name`; empty if no rank has it."""
        return self.properties.get(name, _NONE)

    @property
    def targets(self) -> IndexedTargets:
        """Return the execution targets for constraints (RFC 31); a new index on each access."""
        return IndexedTargets(self)

    # Set operations

    def union(self, other: ResourceSet) -> ResourceSet:
        """Return the union; ValueError if the operands name different hosts for one rank."""
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
        return self._part(resource_ops.intersection(self.groups, other.groups))

    def difference(self, other: ResourceSet) -> ResourceSet:
        """Return the cores and gpus outside `other`, without ranks that become empty."""
        return self._part(resource_ops.difference(self.groups, other.groups))

    def restrict(self, ranks: Idset) -> ResourceSet:
        return self._part(resource_ops.restrict(self.groups, ranks.bits))

    def without_ranks(self, ranks: Idset) -> ResourceSet:
        return self.restrict(self.ranks - ranks)

    def is_disjoint(self, other: ResourceSet) -> bool:
        return resource_ops.is_disjoint(self.groups, other.groups)

    def issubset(self, other: ResourceSet) -> bool:
        return resource_ops.is_subset(self.groups, other.groups)

    def has_same_targets(self, other: ResourceSet) -> bool:
        """Return whether both have the same cores and gpus on the same hosts."""
        return self.groups == other.groups and self.hostnames == other.hostnames

    # Changed copies

    def rerank(self, hosts: Iterable[str] | None = None) -> ResourceSet:
        """Return the same resources with ranks 0..n-1, as a new instance needs them (20.rerank.1).

        Ranks keep their order, or follow `hosts`, which lists the hosts of the new ranks in order;
        ValueError if those are not the hosts of this set. Ranks of one host keep their order.
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
        """Return the same resources for another time; seconds since the epoch, 0.0 = unset."""
        return replace(self, starttime=starttime, expiration=expiration)

    def with_nslots(self, nslots: int | None) -> ResourceSet:
        """Return the same resources as an allocation of `nslots` slots; None: no allocation."""
        return replace(self, nslots=nslots)

    def with_properties(
        self, added: Mapping[str, Idset], removed: Mapping[str, Idset]
    ) -> ResourceSet:
        """Return the same resources with properties added to ranks, and removed from ranks."""
        changed = dict(self.properties)
        for name, ranks in added.items():
            changed[name] = self.ranks_with_property(name) | ranks
        for name, ranks in removed.items():
            changed[name] = changed.get(name, _NONE) - ranks
        return replace(self, properties=_reduced(changed, self.ranks))

    def with_scheduling(self, scheduling: Mapping[str, object] | None) -> ResourceSet:
        return replace(self, scheduling=scheduling)

    def _part(self, groups: Groups) -> ResourceSet:
        """Return this set reduced to `groups`."""
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


class IndexedTargets:
    """The execution targets of a resource set, for any number of constraints."""

    def __init__(self, resources: ResourceSet) -> None:
        self.ranks = resources.ranks
        self._properties = resources.properties
        self._index = HostIndex(resources.hosts)

    def ranks_with_property(self, name: str) -> Idset:
        """Return the ranks with the literal property `name`; empty if no rank has it."""
        return self._properties.get(name, _NONE)

    def ranks_of_hosts(self, hosts: Iterable[str | HostRange]) -> Idset:
        """Return the ranks of the hosts; unknown hosts are ignored."""
        return Idset.from_bits(self._index.ranks(hosts))


_parsed: WeakValueDictionary[str, ResourceSet] = WeakValueDictionary()


def format_r(resources: ResourceSet) -> str:
    """Return R as stored text; ValueError as from `to_json`."""
    return _encode(resources.to_json()).decode()


def parse_r(text: str) -> ResourceSet:
    """Parse R from its stored text; FormatError has the field's path, beginning with `R`.

    Returns the same object again if that text was parsed before and the object is still in use. A
    set that was written as that text is not returned: a writer may hold what no reader accepts.
    """
    resources = _parsed.get(text)
    if resources is None:
        resources = _parsed[text] = ResourceSet.parse(text.encode(), "R")
    return resources


_encode = msgspec.json.Encoder().encode
_NONE = Idset.of(())


def _reduced(properties: Mapping[str, Idset], ranks: Idset) -> dict[str, Idset]:
    """Return the properties of `ranks`, without names that apply to no rank among them."""
    return {name: both for name, ids in properties.items() if (both := ids & ranks)}


def _renumbered(ranks: int, new: Mapping[int, int]) -> int:
    return Idset.of([new[rank] for rank in Idset.from_bits(ranks)]).bits


def _summary(group: Group) -> str:
    kinds = (("core", group.cores), ("gpu", group.gpus))
    children = [f"{kind}{Idset.from_bits(ids).brackets()}" for kind, ids in kinds if ids]
    return f"rank{Idset.from_bits(group.ranks).brackets()}/{','.join(children)}"
