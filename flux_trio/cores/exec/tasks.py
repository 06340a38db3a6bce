"""The processes of a job, by its jobspec and R: command, environment, files and cores of each task.

The environment of a task is that of the jobspec, with what the instance adds, and with

- `FLUX_JOB_ID` (F58), `FLUX_JOB_SIZE` (tasks), `FLUX_JOB_NNODES` (ranks of R),
- `FLUX_TASK_RANK` (in the job), `FLUX_TASK_LOCAL_ID` (on its rank),
- `FLUX_TRIO_RANK` and `FLUX_TRIO_HOST`: its execution target,
- CUDA_VISIBLE_DEVICES: its gpus.

Tags of `templates` are filled in: in its command, in the paths of its files, and in the variables
of the shell option `env-expand`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from flux_trio.cores.exec.affinity import (
    GPU_ORDER,
    Affinities,
    affinities_of,
    bound_cores,
    gpu_environment,
)
from flux_trio.cores.exec.limits import limits_of
from flux_trio.cores.exec.placement import LayoutError, Placement
from flux_trio.cores.exec.redirects import appends, redirects_of, takes_input
from flux_trio.cores.exec.templates import filled_in, has_tags, job_tags, node_tags, task_tags
from flux_trio.formats import FluidForm, Jobspec, ResourceSet, format_fluid
from flux_trio.shell.protocol import Start, Task

FORCE_ASCII: Final = "FLUX_F58_FORCE_ASCII"  # a variable of a job that asks for ids in ASCII
ENV_EXPAND: Final = "system.shell.options.env-expand"

FILLED_CHARS_MAX: Final = 16 << 20
"""Characters of all tasks of a job together in what has tags: each task has its own copy."""


def start_request(
    jobid: int,
    jobspec: Jobspec,
    resources: ResourceSet,
    placements: list[Placement],
    environment: Mapping[str, str],
    id_form: FluidForm = "f58",
) -> Start:
    """Return the request to launch a job; the instance adds `environment`.

    The job id has the F58 form `id_form`, in ASCII if the job's environment asks for it. Raises
    LayoutError or FormatError.
    """
    given = {key: value for key, value in jobspec.environment.items() if value is not None}
    name = format_fluid(jobid, "f58plain" if FORCE_ASCII in given else id_form)
    of_job = {
        "FLUX_JOB_ID": name,
        "FLUX_JOB_SIZE": str(len(placements)),
        "FLUX_JOB_NNODES": str(resources.nnodes),
    }
    try:
        affinities = affinities_of(jobspec)
    except ValueError as error:
        raise LayoutError(str(error)) from None
    tasks = _bound(affinities, resources, placements)
    command = list(jobspec.tasks[0].command)
    templates = _Templates(jobspec)
    if templates:
        tasks = templates.fill_in(jobid, name, resources, placements, tasks)
    order = {} if affinities.gpus == "off" else GPU_ORDER
    environ = order | given | dict(environment) | of_job
    cwd, limits = jobspec.cwd or "/", limits_of(jobspec)
    return Start(
        jobid, command, environ, cwd, tasks, takes_input(jobspec), limits, appends(jobspec)
    )


def _bound(
    affinities: Affinities, resources: ResourceSet, placements: list[Placement]
) -> list[Task]:
    """Return the tasks with their cores, and with variables that say where they run."""
    counts = Counter(place.rank for place in placements)
    cores = {rank: list(resources.cores(rank)) for rank in counts}
    gpus = {rank: list(resources.gpus(rank)) for rank in counts}
    hosts = resources.hosts
    tasks = []
    for place in placements:
        taskid, rank, local_id = place
        ntasks = counts[rank]
        environ = _of_task(place, hosts[rank])
        environ |= gpu_environment(affinities.gpus, gpus[rank], local_id, ntasks)
        bound = bound_cores(affinities.cores, cores[rank], local_id, ntasks)
        tasks.append(Task(taskid, environ, bound))
    return tasks


def _of_task(place: Placement, host: str) -> dict[str, str]:
    return {
        "FLUX_TASK_RANK": str(place.taskid),
        "FLUX_TASK_LOCAL_ID": str(place.local_id),
        "FLUX_TRIO_RANK": str(place.rank),
        "FLUX_TRIO_HOST": host,
    }


class _Templates:
    """The parts of a jobspec that may have tags; false if there are no tags."""

    def __init__(self, jobspec: Jobspec) -> None:
        self._jobspec = jobspec
        self._files = redirects_of(jobspec)
        command = list(jobspec.tasks[0].command)
        self._command = command if any(map(has_tags, command)) else []
        expand = jobspec.attribute(ENV_EXPAND)
        self._environment = expand if isinstance(expand, dict) else {}

    def __bool__(self) -> bool:
        return bool(self._files or self._command or self._environment)

    def fill_in(
        self,
        jobid: int,
        name: str,
        resources: ResourceSet,
        placements: list[Placement],
        tasks: list[Task],
    ) -> list[Task]:
        """Return the tasks with tags filled in; `name` is the job id in F58."""
        hosts = resources.hosts
        of_job = job_tags(jobid, name, self._jobspec, len(placements), resources.nnodes)
        of_node = {
            rank: node_tags(node, rank, hosts[rank], resources.cores(rank), resources.gpus(rank))
            for node, rank in enumerate(resources.ranks)
        }
        filled, nchars = list[Task](), 0
        for task, (taskid, rank, local_id) in zip(tasks, placements, strict=True):
            tags = {**of_job, **of_node[rank], **task_tags(taskid, local_id)}
            argv = [filled_in(word, tags) for word in self._command]
            files = {stream: filled_in(path, tags) for stream, path in self._files.items()}
            more = {
                name: filled_in(text, tags)
                for name, text in self._environment.items()
                if isinstance(text, str)
            }
            nchars += sum(map(len, [*argv, *files.values(), *more.values()]))
            if nchars > FILLED_CHARS_MAX:
                raise LayoutError(
                    f"expected at most {FILLED_CHARS_MAX} characters in the commands, paths and "
                    f"variables with tags of all tasks, got {nchars} for {len(filled) + 1} of "
                    f"{len(tasks)} tasks"
                )
            filled.append(Task(task.taskid, task.env | more, task.cores, files, argv))
        return filled
