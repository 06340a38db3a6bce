"""Standard streams from and to files, as the shell options `input` and `output` say. Pure.

`output.stdout` and `output.stderr` are {"type": "file", "path"}; errors go where output goes if
nothing else is said of them. A path may have mustache tags: {{id}} (or {{id.dec}} and so on),
{{name}}, {{nnodes}}, {{size}}, {{task.id}}, {{task.index}}, {{node.name}} and their like of
flux-core's shell; a tag that there is not stays as it is. Left out: `output.mode` append, labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from flux_trio.formats import Jobspec, format_fluid

_TAG: Final = re.compile(r"\{\{([^{}]+)\}\}")
_PLACES: Final = (("input", "stdin"), ("output", "stdout"), ("output", "stderr"))

Tags = Mapping[str, str]


def redirects_of(jobspec: Jobspec) -> dict[str, str]:
    """The path template of each stream that has a file."""
    found = {}
    for direction, stream in _PLACES:
        value = jobspec.attribute(f"system.shell.options.{direction}.{stream}")
        if isinstance(value, dict) and value.get("type") == "file":
            path = value.get("path")
            if isinstance(path, str) and path:
                found[stream] = path
    if "stdout" in found:
        found.setdefault("stderr", found["stdout"])
    return found


def takes_input(jobspec: Jobspec) -> bool:
    """Whether the tasks read what commands write to the job: {"type": "service"}, as in flux."""
    value = jobspec.attribute("system.shell.options.input.stdin")
    return isinstance(value, dict) and value.get("type") == "service"


def job_tags(jobid: int, jobspec: Jobspec, ntasks: int, nnodes: int) -> dict[str, str]:
    """The tags that are the same for all tasks."""
    ids: dict[str, Any] = {
        form: format_fluid(jobid, form) for form in ("f58", "dec", "hex", "dothex")
    }
    tags = {f"{name}.{form}": text for name in ("id", "jobid") for form, text in ids.items()}
    named = jobspec.attribute("system.job.name")
    name = named if isinstance(named, str) else jobspec.tasks[0].command[0].rpartition("/")[2]
    size = str(ntasks)
    return tags | {
        "id": ids["f58"],
        "jobid": ids["f58"],
        "name": name,
        "nnodes": str(nnodes),
        "size": size,
        "ntasks": size,
    }


def task_tags(taskid: int, index: int, node: int, rank: int, host: str) -> dict[str, str]:
    """The tags of one task: its number in the job and on its node, and that node."""
    number, local = str(taskid), str(index)
    return {
        "task.id": number,
        "task.rank": number,
        "taskid": number,
        "task.index": local,
        "task.localid": local,
        "node.id": str(node),
        "node.name": host,
        "node.broker_rank": str(rank),
    }


def filled_in(template: str, tags: Tags) -> str:
    """The path that a template makes."""
    return _TAG.sub(lambda match: tags.get(match[1], match[0]), template)
