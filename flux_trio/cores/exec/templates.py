"""Mustache tags of a job's command, environment and files (flux-submit(1), Mustache Templates).

Pure. {{id}} ({{id.dec}} and the other forms of an id), {{name}}, {{nnodes}}, {{size}}, {{task.id}},
{{task.index}}, {{node.id}}, {{node.name}}, {{node.cores}} and the other tags of flux-core's shell;
an unknown tag stays as it is. So does {{tmpdir}} where jobs have no directory of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias, get_args

from flux_trio.formats import FluidForm, Idset, Jobspec, format_fluid

_TAG: Final = re.compile(r"\{\{([^{}]+)\}\}")

# A function makes a text only when it is used: the words of one form of job ids load slowly.
Tags: TypeAlias = Mapping[str, str | Callable[[], str]]


def job_tags(jobid: int, f58: str, jobspec: Jobspec, ntasks: int, nnodes: int) -> Tags:
    """Return the tags that are the same for all tasks; `f58` is the job id as the job reads it."""
    ids = {
        f"{name}.{form}": partial(format_fluid, jobid, form)
        for name in ("id", "jobid")
        for form in get_args(FluidForm)
    }
    named = jobspec.attribute("system.job.name")
    name = named if isinstance(named, str) else jobspec.tasks[0].command[0].rpartition("/")[2]
    size = str(ntasks)
    return {
        **ids,
        **dict.fromkeys(("id", "id.f58", "jobid", "jobid.f58"), f58),
        "name": name,
        "nnodes": str(nnodes),
        "size": size,
        "ntasks": size,
    }


def node_tags(node: int, rank: int, host: str, cores: Idset, gpus: Idset) -> Tags:
    """Return the tags of node number `node` of a job."""
    return {
        "node.id": str(node),
        "node.name": host,
        "node.broker_rank": str(rank),
        "node.cores": str(cores),
        "node.ncores": str(len(cores)),
        "node.gpus": str(gpus),
    }


def task_tags(taskid: int, index: int) -> Tags:
    """Return the tags of one task, by its number in the job and on its node."""
    number, local = str(taskid), str(index)
    return {
        "task.id": number,
        "task.rank": number,
        "taskid": number,
        "task.index": local,
        "task.localid": local,
    }


def filled_in(template: str, tags: Tags) -> str:
    """Return `template` with its tags filled in."""

    def text(match: re.Match[str]) -> str:
        value = tags.get(match[1], match[0])
        return value if isinstance(value, str) else value()

    return _TAG.sub(text, template)
