"""What the scheduler is asked: payloads of RFC 27 and 28 as typed values, jobspecs as shapes.

Key names are the RFCs'; `t_submit` in sched.alloc is an addition of the job manager's that need
not be there (readings: t_submit in alloc).
"""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any, Final

import msgspec

from flux_trio.formats import FormatError, Jobspec
from flux_trio.messages import Errno, FluxError, Request
from flux_trio.policies import Job, Shape
from flux_trio.protocols import AcquireType

SHAPES_MAX: Final = 10_000
"""Different requests remembered; few people think of more. All are forgotten when there are more,
since jobs that wait keep theirs."""

Priority = Annotated[int, msgspec.Meta(ge=0, le=4294967295)]
Duration = Annotated[float, msgspec.Meta(ge=0)]


class System(msgspec.Struct):
    """`attributes.system` of a jobspec; Jobspec.parse judges what is not named here."""

    duration: Duration = 0.0
    constraints: Any = None
    queue: str = ""


class Attributes(msgspec.Struct):
    """`attributes` of a jobspec."""

    system: System


class Wanted(msgspec.Struct):
    """What of a jobspec the schedule depends on."""

    resources: list[Any]
    attributes: Attributes


class AllocRequest(msgspec.Struct):
    """sched.alloc."""

    id: int
    priority: Priority
    userid: int
    jobspec: dict[str, Any]
    t_submit: float = 0.0


class JobRequest(msgspec.Struct):
    """sched.cancel and sched.free."""

    id: int


class PrioritizeRequest(msgspec.Struct):
    """sched.prioritize."""

    jobs: list[tuple[int, Priority]]


class ExpirationRequest(msgspec.Struct):
    """sched.expiration; seconds since the Unix epoch, whole ones from who keeps to the text."""

    id: int
    expiration: float


class HelloAnswer(msgspec.Struct):
    """A job-manager.sched-hello response."""

    id: int
    priority: Priority
    userid: int
    t_submit: float


class AcquireAnswer(msgspec.Struct):
    """What all resource.acquire responses have."""

    type: AcquireType


class GrowAnswer(msgspec.Struct):
    """A grow response."""

    resources: dict[str, Any]
    online: str
    offline: str


class TargetsAnswer(msgspec.Struct):
    """A shrink, online or offline response."""

    targets: str


class Shapes:
    """Jobspecs to shapes, the same one for the same request, so that it is parsed once."""

    def __init__(self) -> None:
        self._shapes: dict[bytes, Shape] = {}

    def job(self, asked: AllocRequest) -> Job:
        """The request as a job that waits. Raises FormatError with the place in the jobspec."""
        try:
            wanted = msgspec.convert(asked.jobspec, Wanted)
        except msgspec.ValidationError as error:
            raise FormatError.of_msgspec(error).at("jobspec") from None
        system = wanted.attributes.system
        key = msgspec.json.encode((wanted.resources, system.constraints))
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= SHAPES_MAX:
                self._shapes.clear()
            shape = self._shapes[key] = _shape_of(asked.jobspec)
        duration = system.duration or math.inf  # 0 is unset (RFC 25)
        return Job(
            asked.id, shape, duration, asked.priority, asked.t_submit, sys.intern(system.queue)
        )


def _shape_of(jobspec: dict[str, Any]) -> Shape:
    parsed = Jobspec.parse(jobspec)
    return Shape.of(parsed.request, parsed.constraints)


def jobid_in(request: Request) -> int:
    """The job that a request we cannot read is about. FluxError(EPROTO) when not even that."""
    payload = request.payload
    jobid = payload.get("id") if isinstance(payload, dict) else None
    if not isinstance(jobid, int) or isinstance(jobid, bool):
        raise FluxError(Errno.EPROTO, f"{request.topic}: payload: expected an object with an id")
    return jobid
