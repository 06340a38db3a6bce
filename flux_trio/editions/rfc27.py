"""RFC 27, Resource Allocation Protocol: the payloads between job manager and scheduler.

The fields have the RFC's key names. `t_submit` in sched.alloc is an optional addition of this job
manager (readings: t_submit in alloc).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from flux_trio.editions.codec import (
    Codec,
    PayloadMessage,
    codec,
    has_key,
    of_other_edition,
    read_idset,
    read_r,
)
from flux_trio.editions.rfc21 import Priority
from flux_trio.formats import Idset, ResourceSet
from flux_trio.formats.meanings import JobId, Stamp, Time
from flux_trio.messages import Errno, FluxError, Payload, expect_payload

LIMIT_MAX: Final = 2**31 - 1


class AllocType(IntEnum):
    """The `type` of a sched.alloc response (RFC 27, Alloc)."""

    SUCCESS = 0
    ANNOTATE = 1
    DENY = 2
    CANCEL = 3


class Hello(msgspec.Struct, frozen=True):
    """The job-manager.sched-hello request; `partial_ok`: the scheduler understands `free`."""

    partial_ok: bool = msgspec.field(default=False, name="partial-ok")


class HeldJob(msgspec.Struct, frozen=True):
    """A job-manager.sched-hello response; `free` has the ranks that are freed already."""

    id: JobId
    priority: Priority
    userid: int
    t_submit: Stamp
    free: Idset | None = None


class _HeldJob(msgspec.Struct, frozen=True):
    id: JobId
    priority: Priority
    userid: int
    t_submit: Stamp
    free: str | None = None


def _write_whole_job(held: HeldJob) -> dict[str, Any]:
    return {key: getattr(held, key) for key in ("id", "priority", "userid", "t_submit")}


def _write_held_job(held: HeldJob) -> Payload:
    payload = _write_whole_job(held)
    return payload if held.free is None else payload | {"free": str(held.free)}


def _read_held_job(message: PayloadMessage) -> HeldJob:
    read = _WIRED.read(message)
    free = None if read.free is None else read_idset(read.free, "free")
    return HeldJob(read.id, read.priority, read.userid, read.t_submit, free)


def _read_whole_job(message: PayloadMessage) -> HeldJob:
    if has_key(message, "free"):
        raise of_other_edition(message, "current")
    read = _WIRED_WHOLE.read(message)
    return HeldJob(read.id, read.priority, read.userid, read.t_submit)


class Ready(msgspec.Struct, frozen=True):
    """The job-manager.sched-ready request."""

    mode: Literal["unlimited", "limited"]
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] | None = None


class Waiting(msgspec.Struct, frozen=True):
    """The job-manager.sched-ready response: how many jobs wait for resources."""

    count: int


class Alloc(msgspec.Struct):
    """The sched.alloc request."""

    id: JobId
    priority: Priority
    userid: int
    jobspec: dict[str, Any]
    t_submit: Stamp = 0.0


class AllocAnswer(msgspec.Struct):
    """A sched.alloc response; `R` is what the job gets, if a SUCCESS of the edition has it."""

    id: JobId
    type: AllocType
    annotations: dict[str, Any] | None = None
    note: str | None = None
    R: ResourceSet | None = None


class _AllocAnswer(msgspec.Struct):
    id: JobId
    type: Annotated[int, msgspec.Meta(ge=0, le=3)]
    annotations: dict[str, Any] | None = None
    note: str | None = None
    R: dict[str, Any] | None = None


_SUCCESS: Final = AllocType.SUCCESS
_ALLOC_TYPES: Final = tuple(AllocType)  # by number, from 0 on


def _read_alloc_answer(message: PayloadMessage) -> AllocAnswer:
    read = expect_payload(message, _AllocAnswer)
    return AllocAnswer(read.id, _ALLOC_TYPES[read.type], read.annotations, read.note)


def _read_alloc_answer_with_r(message: PayloadMessage) -> AllocAnswer:
    read = expect_payload(message, _AllocAnswer)
    kind = _ALLOC_TYPES[read.type]
    resources = None
    if kind is _SUCCESS:
        resources = read_r(message, read.R)
    return AllocAnswer(read.id, kind, read.annotations, read.note, resources)


def _write_alloc_answer(answer: AllocAnswer) -> dict[str, Any]:
    payload: dict[str, Any] = {"id": answer.id, "type": int(answer.type)}
    if answer.annotations is not None:
        payload["annotations"] = answer.annotations
    if answer.note is not None:
        payload["note"] = answer.note
    return payload


def _write_alloc_answer_with_r(answer: AllocAnswer) -> Payload:
    payload = _write_alloc_answer(answer)
    if answer.type is _SUCCESS and answer.R is not None:
        return payload | {"R": answer.R.to_json()}
    return payload


class Cancel(msgspec.Struct, frozen=True):
    """The sched.cancel request."""

    id: JobId


class Prioritize(msgspec.Struct, frozen=True):
    """The sched.prioritize request: job ids with their new priorities."""

    jobs: list[tuple[JobId, Priority]]


def _write_prioritize(prioritize: Prioritize) -> Payload:
    return {"jobs": [list(each) for each in prioritize.jobs]}


class Expiration(msgspec.Struct, frozen=True):
    """The sched.expiration request: seconds since the Unix epoch, whole ones in the text."""

    id: JobId
    expiration: Time


class Free(msgspec.Struct, frozen=True):
    """The sched.free request; it frees `R`, and `final` says that it is the job's last one.

    `R` is None for a job whose R the job manager could not read.
    """

    id: JobId
    R: ResourceSet | None = None
    final: bool = True


class _Free(msgspec.Struct):
    id: JobId
    R: dict[str, Any] | None = None
    final: bool = False


def _write_free(free: Free) -> Payload:
    payload: dict[str, Any] = {"id": free.id}
    if free.R is not None:
        payload["R"] = free.R.to_json()
    return payload | {"final": True} if free.final else payload


def _read_free(message: PayloadMessage) -> Free:
    read = expect_payload(message, _Free)
    return Free(read.id, read_r(message, read.R), read.final)


def _read_whole_free(message: PayloadMessage) -> Free:
    """Read that the whole job is freed, where it may be a part of it in the other edition."""
    if has_key(message, "R", "final"):
        raise of_other_edition(message, "current")
    return Free(expect_payload(message, FreeAnswer).id)


class Feasibility(msgspec.Struct, frozen=True):
    """The feasibility.check request; its response is empty, or an error that says why not."""

    jobspec: dict[str, Any]


class FreeAnswer(msgspec.Struct, frozen=True):
    """The sched.free response of an edition that has one."""

    id: JobId


class SchedAnnotations(msgspec.Struct, frozen=True):
    """The `sched` annotations: None (null) removes an annotation, UNSET leaves it as it is."""

    resource_summary: str | UnsetType | None = UNSET
    reason_pending: str | UnsetType | None = UNSET
    t_estimate: float | UnsetType | None = UNSET
    queue: str | UnsetType | None = UNSET
    selection_type: str | UnsetType | None = UNSET


def write_classic_annotations(sched: SchedAnnotations) -> dict[str, Any]:
    """Return the `annotations` object; the classic text has no selection_type."""
    if sched.selection_type is not UNSET:
        sched = msgspec.structs.replace(sched, selection_type=UNSET)
    return {"sched": msgspec.to_builtins(sched)}


def write_current_annotations(sched: SchedAnnotations) -> dict[str, Any]:
    """Return the `annotations` object; the current text has no queue."""
    if sched.queue is not UNSET:
        sched = msgspec.structs.replace(sched, queue=UNSET)
    return {"sched": msgspec.to_builtins(sched)}


def without_reason(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Return `annotations` without reason_pending, and without `sched` if that is empty then."""
    left = dict(annotations)
    sched = {key: value for key, value in left.pop("sched", {}).items() if key != "reason_pending"}
    return left | {"sched": sched} if sched else left


NO_SCHED: Final[Mapping[str, None]] = {"sched": None}
"""The annotations that remove all of `sched`."""


def _read_no_hello(message: PayloadMessage) -> Hello:
    if has_key(message, "partial-ok"):
        raise of_other_edition(message, "current")
    if message.payload:
        raise FluxError(Errno.EPROTO, "sched-hello takes no payload")
    return Hello()


HELLO_EMPTY: Final[Codec[Hello]] = Codec(lambda _: None, _read_no_hello)
HELLO: Final = codec(Hello)
_WIRED: Final = codec(_HeldJob)
_WIRED_WHOLE: Final = codec(_HeldJob, without=frozenset({"free"}))
HELD_JOB_WHOLE: Final = Codec(_write_whole_job, _read_whole_job)
HELD_JOB: Final = Codec(_write_held_job, _read_held_job)
READY: Final = codec(Ready)
WAITING: Final = codec(Waiting)
ALLOC: Final = codec(Alloc)
ALLOC_ANSWER: Final[Codec[AllocAnswer]] = Codec(_write_alloc_answer, _read_alloc_answer)
ALLOC_ANSWER_WITH_R: Final = Codec(_write_alloc_answer_with_r, _read_alloc_answer_with_r)
CANCEL: Final = codec(Cancel)
PRIORITIZE: Final = Codec(_write_prioritize, codec(Prioritize).read)
EXPIRATION: Final = codec(Expiration)
FREE_WHOLE: Final[Codec[Free]] = Codec(lambda free: {"id": free.id}, _read_whole_free)
FREE: Final = Codec(_write_free, _read_free)
FEASIBILITY: Final = codec(Feasibility)
FREE_ANSWER: Final = codec(FreeAnswer)
