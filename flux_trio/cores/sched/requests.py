"""The resources that sched.alloc requests: a shape from its jobspec, which many requests share."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flux_trio.editions.rfc27 import Alloc
from flux_trio.formats import FormatError, Jobspec, Wanted, cost_of
from flux_trio.policies import Job, Shape

SHAPES_COST_MAX: Final = 32 << 20
"""What the shapes that are kept may cost. Beyond it all are dropped; waiting jobs keep theirs."""

_SHAPE_COST: Final = 512  # of a shape without a constraint


class Shapes:
    """Finds the shape of a jobspec; equal resource requests share a shape, which is parsed once.

    `parents` names the queue in whose lane the jobs of a virtual queue wait.
    """

    def __init__(self, parents: Mapping[str, str]) -> None:
        self._parents = parents
        self._shapes: dict[bytes, Shape] = {}
        self._cost = 0  # of `_shapes`

    def job(self, asked: Alloc) -> Job:
        """Return the request as a waiting job. Raises FormatError with the place in the jobspec."""
        try:
            wanted = Wanted.read(asked.jobspec)
        except FormatError as error:
            raise error.at("jobspec") from None
        key = msgspec.json.encode((wanted.resources, wanted.constraints))
        shape = self._shapes.get(key)
        if shape is None:
            shape = shape_of(asked.jobspec)
            self._keep(key, shape, _SHAPE_COST + len(key) + cost_of(wanted.constraints))
        duration = wanted.duration or math.inf  # 0 means no limit (RFC 25)
        queue = sys.intern(self._parents.get(wanted.queue, wanted.queue))
        return Job(asked.id, shape, duration, asked.priority, asked.t_submit, queue)

    def _keep(self, key: bytes, shape: Shape, cost: int) -> None:
        if self._cost + cost > SHAPES_COST_MAX:
            self._shapes, self._cost = {}, 0
        self._shapes[key] = shape
        self._cost += cost


def shape_of(jobspec: dict[str, Any]) -> Shape:
    """Return the shape that a jobspec requests. Raises FormatError with the place in it."""
    parsed = Jobspec.parse(jobspec)
    return Shape.of(parsed.request, parsed.constraints)
