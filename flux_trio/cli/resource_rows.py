"""Rows of `flux-trio resource list` and `resource drain` (flux-resource(1)).

Which resources are free follows from resource.status and from what the jobs that run hold: down is
what is drained, offline or excluded; free is what is neither down nor held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from flux_trio.formats import Hostlist, Idset, ResourceSet

LIST_FORMAT: Final = (
    "{state:>10} ?:{properties:<10.10+} {nnodes:>6} +:{ncores:>6} +:{ngpus:>5} {nodelist}"
)
LIST_HEADINGS: Final = {
    "state": "STATE",
    "properties": "PROPERTIES",
    "nnodes": "NNODES",
    "ncores": "NCORES",
    "ngpus": "NGPUS",
    "ranks": "RANKS",
    "nodelist": "NODELIST",
}
DRAIN_FORMAT: Final = "{timestamp!d:%b%d %R::<12} {state:<8.8} {reason:<30.30+} {nodelist}"
DRAIN_HEADINGS: Final = {
    "timestamp": "TIME",
    "state": "STATE",
    "ranks": "RANKS",
    "reason": "REASON",
    "nnodes": "NNODES",
    "nodelist": "NODELIST",
}
STATES: Final = ("free", "allocated", "down")


@dataclass(frozen=True)
class Resources:
    """The resources of an instance: all, those that jobs hold, and the ranks that are down."""

    all: ResourceSet
    allocated: ResourceSet
    down: Idset

    @classmethod
    def read(cls, status: Mapping[str, Any], held: Iterable[str]) -> Resources:
        """From a resource.status response, and the R of each running job as JSON text."""
        inventory = ResourceSet.parse(status["R"], "R")
        allocated = inventory.restrict(Idset())
        for text in held:
            allocated = allocated.union(ResourceSet.parse(text.encode(), "R"))
        down = Idset.parse(status["offline"]) | Idset.parse(status["exclude"])
        for targets in status["drained"]:
            down |= Idset.parse(targets)
        return cls(inventory, allocated, down)

    def state(self, name: str) -> ResourceSet:
        """The resources in one of STATES."""
        match name:
            case "down":
                return self.all.restrict(self.down)
            case "allocated":
                return self.all.intersection(self.allocated)
            case _:
                return self.all.without_ranks(self.down).difference(self.allocated)


def list_rows(resources: Resources) -> list[dict[str, object]]:
    """A row for each state, or several where nodes differ in their properties."""
    rows = []
    for state in STATES:
        part = resources.state(state)
        groups = _by_properties(part) or {"": part}
        rows += [_list_row(state, names, group) for names, group in groups.items()]
    return rows


def _by_properties(resources: ResourceSet) -> dict[str, ResourceSet]:
    ranks_of: dict[str, list[int]] = {}
    for rank in resources.ranks:
        names = [name for name, ranks in resources.properties.items() if rank in ranks]
        ranks_of.setdefault(",".join(sorted(names)), []).append(rank)
    return {names: resources.restrict(Idset.of(ranks)) for names, ranks in ranks_of.items()}


def _list_row(state: str, properties: str, resources: ResourceSet) -> dict[str, object]:
    return {
        "state": state,
        "properties": properties,
        "nnodes": resources.nnodes,
        "ncores": resources.ncores,
        "ngpus": resources.ngpus,
        "ranks": str(resources.ranks),
        "nodelist": str(Hostlist.of(resources.hosts.values())),
    }


def drain_rows(status: Mapping[str, Any], resources: Resources) -> list[dict[str, object]]:
    """A row for each time and reason: `draining` while jobs hold the targets, then `drained`."""
    rows = []
    host_of = resources.all.hosts
    for text, drain in status["drained"].items():
        targets = Idset.parse(text)
        busy = targets & resources.allocated.ranks
        for state, ranks in (("draining", busy), ("drained", targets - busy)):
            if ranks:
                hosts = Hostlist.of(host_of[rank] for rank in ranks)
                rows.append(
                    {
                        "timestamp": drain["timestamp"],
                        "state": state,
                        "ranks": str(ranks),
                        "reason": drain["reason"],
                        "nnodes": len(ranks),
                        "nodelist": str(hosts),
                    }
                )
    return rows
