"""RFC 14 and 25 on allocations: the R of a job against its jobspec in sched.alloc."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from flux_trio.formats import ResourceSet
from flux_trio.judge.checks.jobspecs import count, known_by_value, system, totals, vertices
from flux_trio.judge.checks.shapes import part
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import EVENT, job_id, logged, payload, sent
from flux_trio.judge.engine.view import Live, Place, Seen, view
from flux_trio.judge.views.acquiring import Change, change_of
from flux_trio.judge.views.expiring import ROUNDING_S
from flux_trio.judge.views.resource_sets import ALLOCATING, allocated, resources_in
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()


class Wanted(Live, frozen=True, gc=False):
    """The resources that a job requests: totals, and how they are grouped."""

    n: Place
    nodes: int
    """The number of nodes; 0 when the jobspec does not say."""
    slots: int
    cores: int
    gpus: int
    cores_per_slot: int
    exclusive: bool
    duration: float
    """The duration in seconds; 0.0 when the jobspec sets none."""


@known_by_value
def _graph_of(resources: list[Any]) -> tuple[int, int, int, int, int, bool]:
    """Nodes, slots, cores and gpus; the cores of a slot; whether nodes are exclusive."""
    jobspec = {"resources": resources}
    total = totals(jobspec)
    nodes = [vertex for vertex in vertices(jobspec) if vertex.get("type") == "node"]
    cores = [count(vertex) for vertex in vertices(jobspec) if vertex.get("type") == "core"]
    exclusive = any(vertex.get("exclusive") is True for vertex in nodes)
    counts = total["node"], total["slot"], total["core"], total["gpu"]
    return *counts, cores[0] if cores else 1, exclusive


def _wanted_of(jobspec: Any, n: int) -> Wanted:
    duration: Any = system(jobspec).get("duration")
    seconds = float(duration) if type(duration) in (int, float) else 0.0
    return Wanted(n, *_graph_of(part(jobspec, "resources", list)), seconds)


def _fold_wanted(_old: Wanted | None, _part: None, record: Record, _seen: Seen) -> Wanted | None:
    if record.kind == EVENT:
        return None
    return _wanted_of(payload(record).get("jobspec"), record.n)


WANTED: Final = view(
    "wanted", sent("request", topics.SCHED_ALLOC), logged("clean"), key=job_id, fold=_fold_wanted
)
"""The resources (`Wanted`) in the latest sched.alloc of each job, by job id."""


class Inventory(Live, frozen=True, gc=False):
    """The inventory that the resource service sent to the scheduler."""

    cores: tuple[tuple[int, int], ...] = ()
    """Pairs of a rank and its number of cores."""
    expiration: float = 0.0


def _inventory_parts(record: Record, _seen: Seen) -> Iterable[tuple[Any, Change]]:
    change = change_of(payload(record))
    is_new = change.resources is not None or change.expiration is not None
    return [((), change)] if is_new else []


def _fold_inventory(
    had: Inventory | None, change: Change, _record: Record, _seen: Seen
) -> Inventory | None:
    found = resources_in(change.resources)
    if found is not None:
        cores = tuple((rank, len(found.cores(rank))) for rank in found.ranks)
        had = Inventory(cores, found.expiration)
    if had is None or change.expiration is None:
        return had
    return had.but(expiration=change.expiration)


INVENTORY: Final = view(
    "inventory",
    sent("response", topics.RESOURCE_ACQUIRE),
    parts=_inventory_parts,
    fold=_fold_inventory,
)


class AllocatedR(NamedTuple):
    """The R that a job got, with its request and the inventory."""

    what: str
    jobid: int | None
    wanted: Wanted
    resources: ResourceSet
    inventory: Inventory


Judge = Callable[[Wanted, ResourceSet, Inventory], "bool | str | None"]


def _got(record: Record, seen: Seen) -> Iterable[AllocatedR]:
    inventory: Inventory = seen.at(INVENTORY) or Inventory()
    for r in allocated(record):
        wanted, resources = seen.at(WANTED, r.jobid), resources_in(r.value)
        if wanted is not None and resources is not None:
            yield AllocatedR(r.what, r.jobid, wanted, resources, inventory)


def _allocation(clause: str) -> Callable[[Judge], Judge]:
    """Register `clause`: the R of a job passes the decorated function."""

    def register(judge: Judge) -> Judge:
        @RULES.each(clause, ALLOCATING, of=_got, views=(WANTED, INVENTORY))
        def check(got: AllocatedR) -> Finding:
            said = judge(got.wanted, got.resources, got.inventory)
            if isinstance(said, str):
                return Broken(f"{got.what}: {said}", (got.wanted.n,), job=got.jobid)
            return said

        return judge

    return register


@_allocation("25.resources.7")
def as_many_as_the_product(
    wanted: Wanted, got: ResourceSet, _there: Inventory
) -> bool | str | None:
    """A job gets as many cores and gpus as its jobspec requests. Whole nodes may have more, which
    `exclusive_nodes_are_whole` judges.
    """
    asked = [("cores", wanted.cores, got.ncores), ("gpus", wanted.gpus, got.ngpus)]
    for what, wanted_of_it, held in asked:
        is_enough = held == wanted_of_it or (wanted.exclusive and held > wanted_of_it)
        if wanted_of_it and not is_enough:
            return f"expected {wanted_of_it} {what}, got {held}"
    return True if wanted.cores or wanted.gpus else None


@_allocation("14.vertex.1")
def exactly_as_many_nodes(wanted: Wanted, got: ResourceSet, _there: Inventory) -> bool | str | None:
    if not wanted.nodes:
        return None
    return got.nnodes == wanted.nodes or f"expected {wanted.nodes} nodes, got {got.nnodes}"


@_allocation("14.vertex.6")
def slots_lie_together(wanted: Wanted, got: ResourceSet, _there: Inventory) -> bool | str | None:
    room = sum(
        group.ranks.bit_count() * (group.cores.bit_count() // wanted.cores_per_slot)
        for group in got.groups
    )
    if room >= wanted.slots:
        return wanted.cores_per_slot > 1
    per_slot = f"slots of {wanted.cores_per_slot} cores, each on one target"
    return f"expected room for {wanted.slots} {per_slot}; there is for {room}"


@_allocation("14.vertex.3")
def exclusive_nodes_are_whole(
    wanted: Wanted, got: ResourceSet, there: Inventory
) -> bool | str | None:
    if not wanted.exclusive or not there.cores:
        return None
    ncores = dict(there.cores)
    for rank in got.ranks:
        cores = len(got.cores(rank))
        if cores < ncores.get(rank, 0):
            return f"rank {rank}: expected all of its {ncores[rank]} cores, got {cores}"
    return True


@_allocation("14.attributes.2")
def it_ends_after_its_duration(
    wanted: Wanted, got: ResourceSet, there: Inventory
) -> bool | str | None:
    if not wanted.duration or not got.starttime:
        return None
    end = got.starttime + wanted.duration
    if there.expiration:
        end = min(end, there.expiration)
    if abs(got.expiration - end) <= ROUNDING_S:
        return True
    return f"expiration: expected starttime + {wanted.duration:g} s = {end}, got {got.expiration}"


@_allocation("14.attributes.3")
def without_a_duration_it_ends_with_the_instance(
    wanted: Wanted, got: ResourceSet, there: Inventory
) -> bool | str | None:
    if wanted.duration or not there.expiration:
        return None  # any end may be that of a configured default
    if 0 < got.expiration <= there.expiration:
        return True
    return f"expiration: expected at most {there.expiration}, got {got.expiration}"
