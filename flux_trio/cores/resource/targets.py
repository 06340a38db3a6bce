"""Execution targets: the inventory in the configuration, and the targets that a request names.

RFC 28 maps all resources to targets, which are the ranks of R (RFC 20). Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flux_trio.config import ResourceEntry
from flux_trio.formats import FormatError, Hostlist, Idset, ResourceSet, check_property_name
from flux_trio.messages import Errno, FluxError

_NONE = Idset()


class Hosts:
    """Which target is on which host; events of `resource.eventlog` name both."""

    def __init__(self, inventory: ResourceSet) -> None:
        self.take(inventory)

    def take(self, inventory: ResourceSet) -> None:
        """Take the hosts of another inventory."""
        self.by_target = inventory.hosts
        self._targets = {host: rank for rank, host in reversed(self.by_target.items())}

    def context(self, targets: Idset) -> dict[str, str]:
        """Return the keys `idset` and `nodelist` of an event."""
        nodelist = Hostlist.of(self.by_target[target] for target in targets)
        return {"idset": str(targets), "nodelist": str(nodelist)}

    def find(self, idset: str, nodelist: str | None) -> Iterator[int]:
        """Yield the targets that an event means: a host may have another rank now, or be gone.

        Without a nodelist they are the ranks that are still there. Raises FormatError.
        """
        if nodelist is None:
            yield from (rank for rank in Idset.parse(idset) if rank in self.by_target)
            return
        for rank, host in zip(Idset.parse(idset), Hostlist.parse(nodelist), strict=False):
            if self.by_target.get(rank) == host:
                yield rank
            elif host in self._targets:
                yield self._targets[host]


def inventory_from_config(entries: Sequence[ResourceEntry]) -> ResourceSet:
    """Return the resources that `[[resource.config]]` lists (flux-config-resource(5)).

    Targets have ranks in the order in which hosts are named first. A later entry for the same host
    adds resources to it. Raises FormatError that names the entry, or the hosts without a core.
    """
    ranks: dict[str, int] = {}
    cores: dict[int, Idset] = {}
    gpus: dict[int, Idset] = {}
    properties: dict[str, Idset] = {}
    for index, entry in enumerate(entries):
        try:
            hosts, entry_cores, entry_gpus = _read_entry(entry)
        except FormatError as error:
            raise error.at(f"resource.config[{index}]") from None
        targets = Idset.of(ranks.setdefault(host, len(ranks)) for host in hosts)
        for target in targets:
            cores[target] = cores.get(target, _NONE) | entry_cores
            gpus[target] = gpus.get(target, _NONE) | entry_gpus
        for name in entry.properties:
            properties[name] = properties.get(name, _NONE) | targets
    hosts_in_order = list(ranks)
    bare = Hostlist.of(host for host, target in ranks.items() if not cores[target])
    if bare or not ranks:
        raise FormatError("at least one host, each with a core", str(bare), "resource.config")
    return ResourceSet.build(
        ((target, cores[target].bits, gpus[target].bits) for target in cores),
        hosts_in_order.__getitem__,
        properties=properties,
    )


def _read_entry(entry: ResourceEntry) -> tuple[Hostlist, Idset, Idset]:
    try:
        hosts = Hostlist.parse(entry.hosts)
        if not hosts:
            raise FormatError("a hostlist with at least one host", entry.hosts)
    except FormatError as error:
        raise error.at("hosts") from None
    for name in entry.properties:
        try:
            check_property_name(name)
        except FormatError as error:
            raise error.at("properties") from None
    return hosts, _read_ids(entry.cores, "cores"), _read_ids(entry.gpus, "gpus")


def _read_ids(text: str | None, key: str) -> Idset:
    try:
        return _NONE if text is None else Idset.parse(text)
    except FormatError as error:
        raise error.at(key) from None


def inventory_of_machine(hostname: str, cores: Idset, targets: int) -> ResourceSet:
    """Return `targets` targets on one machine; each has all of its cores."""
    return ResourceSet.build(((n, cores.bits, 0) for n in range(targets)), lambda _: hostname)


def parse_targets(text: str, inventory: ResourceSet) -> Idset:
    """Return the targets of an idset or a hostlist. FluxError(EINVAL) for an unknown one."""
    try:
        targets = Idset.parse(text)
    except FormatError:
        targets = _targets_on(text, inventory)
    if not targets:
        raise FluxError(Errno.EINVAL, "idset is empty")
    if not targets <= inventory.ranks:
        raise FluxError(
            Errno.EINVAL,
            f"idset is out of range: {targets - inventory.ranks} not among {inventory.ranks}",
        )
    return targets


def _targets_on(text: str, inventory: ResourceSet) -> Idset:
    try:
        hosts = Hostlist.parse(text)
    except FormatError:
        raise FluxError(Errno.EINVAL, f"invalid targets: {text!r:.80}") from None
    known = set(inventory.hostnames)
    strangers = Hostlist.of(host for host in hosts if host not in known)
    if strangers:
        raise FluxError(Errno.EINVAL, f"invalid targets: invalid hosts: {strangers}")
    return inventory.ranks_of_hosts(hosts)
