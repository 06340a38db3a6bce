"""Where each task of a job runs: the rank of R. Pure.

Slots go to the ranks of R in ascending order: as many to a rank as its cores have room for, or as
many as the jobspec asks for on each node. Tasks go to slots in blocks. With the shell option
`per-resource` each node or core gets a number of tasks instead. The shell option `taskmap` changes
the order: with `cyclic` each rank in turn gets one task, or as many as the value says; with
`manual` an RFC 34 task map says where each task goes. Left out: flux-core's `hostfile`, because the
file is on the user's machine.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, NamedTuple

import msgspec

from flux_trio.formats import (
    FormatError,
    Jobspec,
    PerResource,
    ResourceSet,
    parse_taskmap,
    per_resource_of,
)

TASKS_MAX: Final = 1 << 14  # processes of one job: one machine runs them all
TASKMAP: Final = "system.shell.options.taskmap"

_STRIDE: Final = re.compile("0*[1-9][0-9]{0,8}")


class LayoutError(ValueError):
    """The tasks of a jobspec cannot be laid out on its R (RFC 14)."""


class _Taskmap(msgspec.Struct):
    """flux-core's shell option for another order of tasks; the scheme says what `value` means."""

    scheme: str
    value: str = ""


class Placement(NamedTuple):
    """One task and its place."""

    taskid: int
    rank: int
    local_id: int  # among the tasks on its rank
    node: int  # the index of its rank in R


def place_tasks(jobspec: Jobspec, resources: ResourceSet) -> list[Placement]:
    """Return the tasks in order.

    Raises LayoutError if R has no room for the slots, or if an option is wrong.
    """
    try:
        per_resource = per_resource_of(jobspec)
    except FormatError as error:
        raise LayoutError(str(error)) from None
    if per_resource is None:
        ranks = _by_slot(jobspec, resources)
    else:
        ranks = _by_resource(per_resource, resources)
    taskmap = jobspec.attribute(TASKMAP)
    if taskmap is not None:
        ranks = _mapped(taskmap, ranks, resources)
    placements: list[Placement] = []
    nodes = {rank: node for node, rank in enumerate(resources.ranks)}
    on_rank: dict[int, int] = {}
    for rank in ranks:
        local_id = on_rank.get(rank, 0)
        on_rank[rank] = local_id + 1
        placements.append(Placement(len(placements), rank, local_id, nodes[rank]))
    return placements


def _by_slot(jobspec: Jobspec, resources: ResourceSet) -> list[int]:
    """Return the rank of each task, with tasks spread over the slots."""
    (task,) = jobspec.tasks
    _check_number(task.ntasks)
    slots = slot_ranks(jobspec, resources)
    share, more = divmod(task.ntasks, len(slots))
    return [rank for index, rank in enumerate(slots) for _ in range(share + (index < more))]


def _by_resource(wanted: PerResource, resources: ResourceSet) -> list[int]:
    """Return the rank of each task, with a number of tasks on each node or core of R."""
    by_core = wanted.type == "core"
    counts = {
        rank: wanted.count * (len(resources.cores(rank)) if by_core else 1)
        for rank in resources.ranks
    }
    _check_number(sum(counts.values()))
    return [rank for rank, count in counts.items() for _ in range(count)]


def _check_number(ntasks: int) -> None:
    """Raise LayoutError for too many tasks, before a list of them is made."""
    if ntasks > TASKS_MAX:
        raise LayoutError(f"expected at most {TASKS_MAX} tasks, got {ntasks}")


def _mapped(option: object, ranks: list[int], resources: ResourceSet) -> list[int]:
    """Return the rank of each task after `taskmap`; `ranks` has them in blocks."""
    try:
        wanted = msgspec.convert(option, _Taskmap)
    except msgspec.ValidationError as error:
        raise LayoutError(f"{TASKMAP}: {error}") from None
    match wanted.scheme:
        case "block":
            return ranks
        case "cyclic":
            return _cyclic(wanted.value or "1", ranks)
        case "manual":
            return _manual(wanted.value, len(ranks), list(resources.ranks))
        case other:
            text = f"expected the scheme block, cyclic or manual, got {other!r}"
            raise LayoutError(f"{TASKMAP}: {text}")


def _cyclic(value: str, ranks: list[int]) -> list[int]:
    if not _STRIDE.fullmatch(value):
        raise LayoutError(f"{TASKMAP}: invalid cyclic stride: {value:.80}")
    left, dealt = Counter(ranks), list[int]()
    while left:
        for rank in sorted(left):
            count = min(int(value), left[rank])
            dealt += [rank] * count
            left[rank] -= count
        left = +left  # without the ranks that have got all their tasks
    return dealt


def _manual(value: str, ntasks: int, ranks: list[int]) -> list[int]:
    try:
        nodes = parse_taskmap(value, max(ntasks, len(ranks)))
    except FormatError as error:
        raise LayoutError(f"{TASKMAP}: {error}") from None
    if len(nodes) != ntasks or set(nodes) != set(range(len(ranks))):
        raise LayoutError(
            f"{TASKMAP}: expected a map of {ntasks} tasks on {len(ranks)} nodes, "
            f"got {len(nodes)} on {len(set(nodes))}"
        )
    return [ranks[node] for node in nodes]


def slot_ranks(jobspec: Jobspec, resources: ResourceSet) -> list[int]:
    """Return the rank of each slot. Raises LayoutError if R has no room for the slots."""
    request = jobspec.request
    ranks: list[int] = []
    for rank in resources.ranks:
        room = request.slots_per_node or len(resources.cores(rank)) // request.cores_per_slot
        ranks += [rank] * min(room, request.nslots - len(ranks))
    if len(ranks) < request.nslots:
        raise LayoutError(
            f"expected room for {request.nslots} slots of {request.cores_per_slot} cores, "
            f"got {resources.summary()}"
        )
    return ranks
