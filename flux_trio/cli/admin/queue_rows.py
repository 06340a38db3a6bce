"""Rows of `flux-trio queue list` (flux-queue(1)).

A queue's limits are those of its policy; the effective range also ends at the queue's resources.
Left out: colours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from flux_trio.cli.admin.resource_rows import Resources
from flux_trio.cli.terminal.named_formats import NamedFormat
from flux_trio.config import Config, Policy
from flux_trio.formats import ResourceSet

COUNTS: Final = ("nnodes", "ncores", "ngpus")
RESOURCE_STATES: Final = ("all", "free", "allocated", "up", "down")

_STATE: Final = "?:{queuem:<8.8} ?:{parent:<8.8} {enabled:>2} {started:>2} "
_TIMES: Final = "{defaults.timelimit!F:>8} {limits.timelimit!F:>8} "

FORMATS: Final = {
    "default": NamedFormat(
        f"{_STATE}{_TIMES}{{limits.range.effective.nnodes:>10}} "
        "{limits.range.effective.ncores:>10} {limits.range.effective.ngpus:>10}",
        "Status, default time limit, and limits within the resources",
    ),
    "policy": NamedFormat(
        f"{_STATE}{_TIMES}{{limits.range.nnodes:>10}} "
        "{limits.range.ncores:>10} {limits.range.ngpus:>10}",
        "Status, default time limit, and limits as configured",
    ),
    "nodes": NamedFormat(
        f"{_STATE}{{resources.all.nnodes:>6}} {{resources.up.nnodes:>10}} "
        "{resources.down.nnodes:>10} {resources.allocated.nnodes:>11} {resources.free.nnodes:>10}",
        "Status and nodes: all, up, down, allocated, free",
    ),
}

HEADINGS: Final[dict[str, str]] = {
    "queue": "QUEUE",
    "queuem": "QUEUE",
    "parent": "PARENT",
    "submission": "SUBMIT",
    "scheduling": "SCHED",
    "enabled": "EN",
    "started": "ST",
    "enabled.ascii": "EN",
    "started.ascii": "ST",
    "color_enabled": "",
    "color_started": "",
    "color_off": "",
    "defaults.timelimit": "TDEFAULT",
    "limits.timelimit": "TLIMIT",
    **{f"limits.range.{each}": each.upper() for each in COUNTS},
    **{f"limits.range.effective.{each}": each.upper() for each in COUNTS},
    **{f"limits.min.{each}": f"MIN{each[1:].upper()}" for each in COUNTS},
    **{f"limits.max.{each}": f"MAX{each[1:].upper()}" for each in COUNTS},
    **{
        f"resources.{state}.{each}": each[1:].upper()
        + ("" if state == "all" else f":{state[:5].upper()}")
        for state in RESOURCE_STATES
        for each in COUNTS
    },
}


def needs_jobs(fields: Iterable[str]) -> bool:
    """Whether a row with these fields depends on the resources that jobs hold."""
    return any(field.startswith(("resources.free", "resources.allocated")) for field in fields)


def queue_row(
    name: str | None, config: Config, status: Mapping[str, Any], resources: Resources
) -> dict[str, object]:
    """Return all fields of a queue, None being the anonymous one; `status` is its queue-status."""
    policy = config.policy_for(name)
    parts = _parts(name, config, resources)
    default = name is not None and name == config.default_queue
    return {
        "queue": name or "",
        "queuem": f"{name or ''}{'*' if default else ''}",
        "parent": "" if name is None else config.parents.get(name, ""),
        "color_enabled": "",
        "color_started": "",
        "color_off": "",
        **_switches(status),
        "defaults.timelimit": policy.duration or math.inf,
        "limits.timelimit": policy.limits.duration,
        **_limits(policy, parts["all"]),
        **{
            f"resources.{state}.{each}": getattr(part, each)
            for state, part in parts.items()
            for each in COUNTS
        },
    }


def _switches(status: Mapping[str, Any]) -> dict[str, object]:
    enabled, started = status["enable"], status["start"]
    return {
        "submission": "enabled" if enabled else "disabled",
        "scheduling": "started" if started else "stopped",
        "enabled": "✔" if enabled else "✗",
        "started": "✔" if started else "✗",
        "enabled.ascii": "y" if enabled else "n",
        "started.ascii": "y" if started else "n",
    }


def _limits(policy: Policy, resources: ResourceSet) -> dict[str, object]:
    fields: dict[str, object] = {}
    for each in COUNTS:
        least, most = getattr(policy.limits.min, each), getattr(policy.limits.max, each)
        there_are = min(most, getattr(resources, each))
        fields[f"limits.min.{each}"] = least
        fields[f"limits.max.{each}"] = most
        fields[f"limits.range.{each}"] = f"{least}-{most}"
        fields[f"limits.range.effective.{each}"] = f"{least}-{there_are}"
    return fields


def _parts(name: str | None, config: Config, resources: Resources) -> dict[str, ResourceSet]:
    """Return the resources that the queue may use, by state."""
    constraint = config.constraint_for(name)
    every = resources.all
    if constraint is not None:
        every = every.restrict(constraint.select(every.targets))
    ranks = every.ranks
    return {
        "all": every,
        "up": every.without_ranks(resources.down),
        **{state: resources.state(state).restrict(ranks) for state in ("free", "allocated")},
        "down": resources.state("down").restrict(ranks),
    }
