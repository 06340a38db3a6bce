"""From a jobspec and R to processes: how many, where, with which environment and cores.

Slots go to the ranks of R in ascending order, as many on each as its cores hold, or as the jobspec
says for each node; tasks go to slots in blocks, or so many to each node or core as the shell option
`per-resource` says. A task has in its environment what the jobspec
gives it, what the instance adds, and

- `FLUX_JOB_ID` (F58), `FLUX_JOB_SIZE` (tasks), `FLUX_JOB_NNODES` (ranks of R),
- `FLUX_TASK_RANK` (in the job), `FLUX_TASK_LOCAL_ID` (on its rank),
- `FLUX_TRIO_RANK` and `FLUX_TRIO_HOST`: the execution target it poses to be on.

It may use all cores that R has on its rank. Left out: gpus, and binding task by task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from flux_trio.formats import Jobspec, ResourceSet, format_fluid
from flux_trio.services.exec.redirects import (
    filled_in,
    job_tags,
    redirects_of,
    takes_input,
    task_tags,
)
from flux_trio.services.exec.shell_protocol import Start, Task

TASKS_MAX: Final = 1 << 14  # processes of one job: one machine runs them all
PER_RESOURCE: Final = "system.shell.options.per-resource"


class LayoutError(ValueError):
    """The tasks of a jobspec cannot be laid out on its R (RFC 14)."""


class _PerResource(msgspec.Struct):
    """The shell option of flux-core for so many tasks on each resource, whatever was asked for."""

    type: Literal["node", "core"]
    count: Annotated[int, msgspec.Meta(ge=1, le=TASKS_MAX)] = 1


class Placement(NamedTuple):
    """One task and its place."""

    taskid: int
    rank: int
    local_id: int  # among the tasks on its rank


def place_tasks(jobspec: Jobspec, resources: ResourceSet) -> list[Placement]:
    """The tasks in order. Raises LayoutError when R has no room for the slots."""
    per_resource = jobspec.attribute(PER_RESOURCE)
    if per_resource is None:
        ranks = _by_slot(jobspec, resources)
    else:
        ranks = _by_resource(per_resource, resources)
    if len(ranks) > TASKS_MAX:
        raise LayoutError(f"expected at most {TASKS_MAX} tasks, got {len(ranks)}")
    placements: list[Placement] = []
    on_rank: dict[int, int] = {}
    for rank in ranks:
        local_id = on_rank.get(rank, 0)
        on_rank[rank] = local_id + 1
        placements.append(Placement(len(placements), rank, local_id))
    return placements


def _by_slot(jobspec: Jobspec, resources: ResourceSet) -> list[int]:
    """The rank of each task, given that slots share them."""
    (task,) = jobspec.tasks
    if task.ntasks > TASKS_MAX:  # before there is a list of them
        raise LayoutError(f"expected at most {TASKS_MAX} tasks, got {task.ntasks}")
    slots = slot_ranks(jobspec, resources)
    share, more = divmod(task.ntasks, len(slots))
    return [rank for index, rank in enumerate(slots) for _ in range(share + (index < more))]


def _by_resource(value: object, resources: ResourceSet) -> list[int]:
    """The rank of each task, given that there are so many on each node or core of R."""
    try:
        wanted = msgspec.convert(value, _PerResource)
    except msgspec.ValidationError as error:
        raise LayoutError(f"{PER_RESOURCE}: {error}") from None
    if wanted.type == "node":
        return [rank for rank in resources.ranks for _ in range(wanted.count)]
    counts = {rank: wanted.count * len(resources.cores(rank)) for rank in resources.ranks}
    return [rank for rank, count in counts.items() for _ in range(count)]


def slot_ranks(jobspec: Jobspec, resources: ResourceSet) -> list[int]:
    """The rank of each slot. Raises LayoutError when R has no room for them."""
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


def start_request(
    jobid: int,
    jobspec: Jobspec,
    resources: ResourceSet,
    placements: list[Placement],
    environment: Mapping[str, str],
) -> Start:
    """What the shell host is to launch; `environment` is what the instance adds."""
    given = {key: value for key, value in jobspec.environment.items() if value is not None}
    of_job = {
        "FLUX_JOB_ID": format_fluid(jobid, "f58"),
        "FLUX_JOB_SIZE": str(len(placements)),
        "FLUX_JOB_NNODES": str(resources.nnodes),
    }
    cores = {rank: list(resources.cores(rank)) for rank in {place.rank for place in placements}}
    hosts = resources.hosts
    redirects = redirects_of(jobspec)
    tags = job_tags(jobid, jobspec, len(placements), resources.nnodes) if redirects else {}
    nodes = {rank: index for index, rank in enumerate(resources.ranks)}
    tasks = []
    for taskid, rank, local_id in placements:
        of_task = task_tags(taskid, local_id, nodes[rank], rank, hosts[rank]) if redirects else {}
        files = {stream: filled_in(path, tags | of_task) for stream, path in redirects.items()}
        environ = _of_task(Placement(taskid, rank, local_id), hosts[rank])
        tasks.append(Task(taskid, environ, cores[rank], files))
    command = list(jobspec.tasks[0].command)
    environ = given | dict(environment) | of_job
    return Start(jobid, command, environ, jobspec.cwd or "/", tasks, takes_input(jobspec))


def _of_task(place: Placement, host: str) -> dict[str, str]:
    return {
        "FLUX_TASK_RANK": str(place.taskid),
        "FLUX_TASK_LOCAL_ID": str(place.local_id),
        "FLUX_TRIO_RANK": str(place.rank),
        "FLUX_TRIO_HOST": host,
    }
