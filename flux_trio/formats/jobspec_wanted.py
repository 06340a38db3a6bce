"""The parts of a jobspec (RFC 14, 25, 31, 33) that scheduling depends on, read in one step.

`Jobspec.parse` checks the whole jobspec.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from flux_trio.formats.errors import converted

_Duration = Annotated[float, msgspec.Meta(ge=0)]


class _System(msgspec.Struct):
    duration: _Duration = 0.0
    constraints: Any = None
    queue: str = ""


class _Attributes(msgspec.Struct):
    system: _System


class _Wanted(msgspec.Struct):
    resources: list[Any]
    attributes: _Attributes


class Wanted(msgspec.Struct, frozen=True):
    """`duration` is in seconds, 0 if not set; `queue` is "" if the jobspec names no queue."""

    resources: list[Any]
    duration: float
    constraints: Any
    queue: str

    @classmethod
    def read(cls, jobspec: object) -> Wanted:
        """Read a decoded jobspec; FormatError has the path of the field."""
        read = converted(jobspec, _Wanted)
        system = read.attributes.system
        return cls(read.resources, system.duration, system.constraints, system.queue)
