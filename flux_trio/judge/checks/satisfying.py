"""Whether an inventory can serve a job: counts, nodes, exclusive nodes, constraints and gpus.

What is down is not missing: a job that needs it waits (RFC 28). What a jobspec asks for is read for
the shapes that RFC 25 knows; of others nothing is said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from flux_trio.judge.checks.constraints import Targets, matching
from flux_trio.judge.checks.jobspecs import known_by_value, system
from flux_trio.judge.checks.shapes import members, part

_PARTS: Final = ("core", "gpu")


class Needs(NamedTuple):
    """What a job needs at least."""

    nodes: int
    """The number of nodes; 0 if the jobspec names none."""
    slots: int
    """The slots of each node, or of the job if it names no nodes."""
    cores: int
    """The cores of each slot."""
    gpus: int
    constraint: str
    """Its constraint (RFC 31) as JSON text; "" if it has none."""


def needs_of(jobspec: Any) -> Needs | None:
    """Return what a job needs; None if the jobspec has another shape than those of RFC 25."""
    counts: tuple[int, int, int, int] | None = _counts(part(jobspec, "resources", list))
    constraint = system(jobspec).get("constraints")
    if counts is None:
        return None
    return Needs(*counts, json.dumps(constraint) if constraint else "")


@known_by_value
def _counts(resources: list[Any]) -> tuple[int, int, int, int] | None:
    vertices, nodes = members(resources), 0
    if [each.get("type") for each in vertices] == ["node"]:
        nodes = _least(vertices[0])
        vertices = members(vertices[0].get("with"))
        if not nodes:
            return None
    if [each.get("type") for each in vertices] != ["slot"]:
        return None
    found = dict.fromkeys(_PARTS, 0)
    for each in members(vertices[0].get("with")):
        kind = each.get("type")
        if not isinstance(kind, str) or kind not in found or each.get("with"):
            return None
        found[kind] += _least(each)
    slots = _least(vertices[0])
    return (nodes, slots, found["core"], found["gpu"]) if slots and found["core"] else None


def _least(vertex: Mapping[str, Any]) -> int:
    """Return the count of a vertex, of a range the least one; 0 if it cannot be read."""
    count = vertex.get("count")
    count = count.get("min") if isinstance(count, dict) else count
    return count if type(count) is int and count > 0 else 0


def can_serve(
    needs: Needs, targets: Targets, offered: Iterable[tuple[int, int, int]]
) -> bool | None:
    """Whether targets can serve a job when all of it is free; None if a constraint asks for what is
    not known of them. `offered` has target, cores and gpus.
    """
    matched = matching(json.loads(needs.constraint), targets) if needs.constraint else targets.ranks
    if matched is None:
        return None
    room = [
        min(cores // needs.cores, gpus // needs.gpus if needs.gpus else cores)
        for target, cores, gpus in offered
        if target in matched
    ]
    if needs.nodes:
        return sum(slots >= needs.slots for slots in room) >= needs.nodes
    return sum(room) >= needs.slots
