"""The shell option `per-resource` of flux-core: a number of tasks on each node or core of R."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from flux_trio.formats.errors import converted
from flux_trio.formats.jobspec import Jobspec
from flux_trio.formats.taskmap import TASKS_MAX

PER_RESOURCE: Final = "system.shell.options.per-resource"


class PerResource(msgspec.Struct, frozen=True):
    """`count` tasks on each node, or on each core."""

    type: Literal["node", "core"]
    count: Annotated[int, msgspec.Meta(ge=1, le=TASKS_MAX)] = 1


def per_resource_of(jobspec: Jobspec) -> PerResource | None:
    """Return what a jobspec says; None if its number of tasks does not depend on R. FormatError."""
    value = jobspec.attribute(PER_RESOURCE)
    return None if value is None else converted(value, PerResource, PER_RESOURCE)
