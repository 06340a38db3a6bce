"""Who holds which resources: the job manager, the scheduler and the resource module are compared.

A node that only one of them holds is a leak: it is free for nobody, or given twice. While jobs come
and go the answers differ for a moment, because they are of different moments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from flux_trio.attach.handle import FluxHandle
from flux_trio.formats import FormatError, Idset, ResourceSet
from flux_trio.judge.views.resource_sets import booked_in
from flux_trio.messages import Errno, FluxError, topics

RANK_0: Final = 0
"""The ranks' resource modules do not all know the whole."""
SCHED_RESOURCE_STATUS: Final = "sched.resource-status"
RESOURCE_SCHED_STATUS: Final = "resource.sched-status"

ASKED: Final = {
    "job manager": topics.JOB_RESOURCE_STATUS,
    "scheduler": SCHED_RESOURCE_STATUS,
    "resource module": RESOURCE_SCHED_STATUS,
}
"""The three parties, and what each is asked."""


class Allocated(msgspec.Struct):
    """What the answers have in common: an R, of which there may be nothing; some have all nodes."""

    allocated: dict[str, Any] | None = None
    all: dict[str, Any] | None = None


class Allocations(NamedTuple):
    """What each party says is allocated, None for nothing, and the hosts of the ranks."""

    held: dict[str, ResourceSet | None]
    hosts: dict[int, str]


class Difference(NamedTuple):
    """Resources of a node that some parties hold and others do not."""

    host: str
    rank: int
    type: str
    """core or gpu."""
    ids: Idset
    held_by: tuple[str, ...]
    free_for: tuple[str, ...]

    def __str__(self) -> str:
        holders, others = " and ".join(self.held_by), " and ".join(self.free_for)
        what = f"{self.host} (rank {self.rank}): {self.type} {self.ids}"
        return f"{what}: held by the {holders}, and not by the {others}"


async def ask_all(flux: FluxHandle) -> Allocations:
    """Return what the parties say. FluxError if one does not say it.

    A scheduler need not know the method: then it is not compared.
    """
    allocations = Allocations({}, {})
    for party, topic in ASKED.items():
        try:
            answer = await flux.ask(topic, Allocated, None, RANK_0)
        except FluxError as error:
            if error.errnum == Errno.ENOSYS and topic == SCHED_RESOURCE_STATUS:
                continue
            raise
        allocations.held[party] = parse_allocated(topic, answer.allocated)
        everything = parse_allocated(topic, answer.all)
        if everything is not None:
            allocations.hosts.update(everything.hosts)
    return allocations


def parse_allocated(topic: str, value: dict[str, Any] | None) -> ResourceSet | None:
    """Return the R of an answer. FluxError(EPROTO) names topic and key."""
    execution = None if value is None else value.get("execution")
    if value is None or (isinstance(execution, dict) and execution.get("R_lite") == []):
        return None  # RFC 20 has no R of nothing, and flux-core writes it so
    if isinstance(execution, dict) and "nodelist" not in execution:
        # as flux-core's schedulers write what they hold
        resources = booked_in(value)
        if resources is not None:
            return resources
    try:
        return ResourceSet.parse(value, "allocated")
    except FormatError as error:
        raise FluxError(Errno.EPROTO, f"{topic}: payload: {error}") from None


def compare(allocations: Allocations) -> list[Difference]:
    """Return what not all parties hold, by rank."""
    found: list[Difference] = []
    ranks = {rank for held in allocations.held.values() if held is not None for rank in held.ranks}
    for rank in sorted(ranks):
        host = allocations.hosts.get(rank) or "a node"
        for type_ in ("core", "gpu"):
            by_party = {party: _ids(held, rank, type_) for party, held in allocations.held.items()}
            found += _differences(host, rank, type_, by_party)
    return found


def _ids(held: ResourceSet | None, rank: int, type_: str) -> Idset:
    if held is None or rank not in held.ranks:
        return Idset()
    return held.cores(rank) if type_ == "core" else held.gpus(rank)


def _differences(
    host: str, rank: int, type_: str, by_party: Mapping[str, Idset]
) -> list[Difference]:
    """Return the resources of one node by who holds them, unless all do."""
    by_holders: dict[tuple[str, ...], list[int]] = {}
    for id_ in sorted({id_ for ids in by_party.values() for id_ in ids}):
        holders = tuple(party for party, ids in by_party.items() if id_ in ids)
        by_holders.setdefault(holders, []).append(id_)
    return [
        Difference(
            host,
            rank,
            type_,
            Idset.of(ids),
            holders,
            tuple(party for party in by_party if party not in holders),
        )
        for holders, ids in by_holders.items()
        if len(holders) < len(by_party)
    ]
