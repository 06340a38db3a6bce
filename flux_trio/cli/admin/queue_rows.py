"""Rows of `flux-trio queue list` (flux-queue(1)).

A queue's limits are those of its policy; the effective range also ends at the queue's resources.
Left out: colours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from flux_trio.cli.admin.resource_rows import Resources
from flux_trio.cli.terminal.columns import Field, FieldsRow
from flux_trio.cli.terminal.named_formats import NamedFormat
from flux_trio.config import Config, Policy
from flux_trio.formats import ResourceSet

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


@dataclass(frozen=True)
class _Queue:
    """A queue as it is listed; `parts` are the resources that it may use, by state."""

    name: str  # "" is the anonymous one
    parent: str
    is_default: bool
    policy: Policy
    status: Mapping[str, Any]
    parts: Mapping[str, ResourceSet]

    def limit(self, end: str, count: str) -> Any:
        """Return the limit `min` or `max` of the policy."""
        return getattr(getattr(self.policy.limits, end), count)

    def range(self, count: str, most: float = math.inf) -> str:
        return f"{self.limit('min', count)}-{min(self.limit('max', count), most)}"


def _count_fields(count: str) -> dict[str, Field]:
    """Return the fields about nnodes, ncores or ngpus."""

    def available(queue: _Queue, state: str = "all") -> int:
        found: int = getattr(queue.parts[state], count)
        return found

    name = count.upper()
    word = name[1:]
    return {
        f"limits.range.{count}": Field(name, lambda queue: queue.range(count)),
        f"limits.range.effective.{count}": Field(
            name, lambda queue: queue.range(count, available(queue))
        ),
        f"limits.min.{count}": Field(f"MIN{word}", lambda queue: queue.limit("min", count)),
        f"limits.max.{count}": Field(f"MAX{word}", lambda queue: queue.limit("max", count)),
        **{
            f"resources.{state}.{count}": Field(
                word if state == "all" else f"{word}:{state[:5].upper()}",
                partial(available, state=state),
            )
            for state in RESOURCE_STATES
        },
    }


def _switch(heading: str, key: str, on: str, off: str) -> Field:
    return Field(heading, lambda queue: on if queue.status[key] else off)


_NO_COLOR: Final = Field("", lambda _queue: "")

FIELDS: Final = {
    "queue": Field("QUEUE", lambda queue: queue.name),
    "queuem": Field("QUEUE", lambda queue: f"{queue.name}{'*' if queue.is_default else ''}"),
    "parent": Field("PARENT", lambda queue: queue.parent),
    "submission": _switch("SUBMIT", "enable", "enabled", "disabled"),
    "scheduling": _switch("SCHED", "start", "started", "stopped"),
    "enabled": _switch("EN", "enable", "✔", "✗"),
    "started": _switch("ST", "start", "✔", "✗"),
    "enabled.ascii": _switch("EN", "enable", "y", "n"),
    "started.ascii": _switch("ST", "start", "y", "n"),
    "color_enabled": _NO_COLOR,
    "color_started": _NO_COLOR,
    "color_off": _NO_COLOR,
    "defaults.timelimit": Field("TDEFAULT", lambda queue: queue.policy.duration or math.inf),
    "limits.timelimit": Field("TLIMIT", lambda queue: queue.policy.limits.duration),
    **_count_fields("nnodes"),
    **_count_fields("ncores"),
    **_count_fields("ngpus"),
}


def needs_jobs(fields: Iterable[str]) -> bool:
    """Whether a row with these fields depends on the resources that jobs hold."""
    return any(field.startswith(("resources.free", "resources.allocated")) for field in fields)


def queue_row(
    name: str | None, config: Config, status: Mapping[str, Any], resources: Resources
) -> FieldsRow:
    """Return the row of a queue, None being the anonymous one; `status` is its queue-status."""
    queue = _Queue(
        name or "",
        config.parents.get(name or "", ""),
        name is not None and name == config.default_queue,
        config.policy_for(name),
        status,
        _parts(name, config, resources),
    )
    return FieldsRow(FIELDS, queue)


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
