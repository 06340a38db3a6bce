"""Payloads between a command, ingest and the job manager, from a submission to its answer.

No RFC describes them; `urgency` and `flags` are RFC 21's (Submit Event).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from flux_trio.editions.codec import Codec, PayloadMessage, codec
from flux_trio.editions.rfc21 import URGENCY_DEFAULT, Urgency
from flux_trio.formats.meanings import JobId, JsonObject, Stamp
from flux_trio.messages import Payload, expect_payload


class Submit(msgspec.Struct):
    """The job-ingest.submit request: a jobspec object (RFC 25), or J, which Flux's programs send.

    J is the jobspec with the signature of its user (RFC 15); one of the two is there.
    """

    # our own: the jobspec as an object, in place of J
    jobspec: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    J: str | None = None  # the jobspec with the signature of its user
    urgency: Urgency = URGENCY_DEFAULT  # 0 (held) to 31
    # debug, waitable, novalidate: the numbers of RFC 21 in the edition
    flags: Annotated[int, msgspec.Meta(ge=0)] = 0


class Submitted(msgspec.Struct, frozen=True):
    """The job-ingest.submit response."""

    id: int


class NewJob(msgspec.Struct, gc=False):
    """One entry of a job-manager.submit request; `t_submit` in seconds since the Unix epoch."""

    id: JobId
    userid: int
    urgency: Urgency
    t_submit: Stamp
    flags: int
    jobspec: JsonObject


class NewJobs(msgspec.Struct):
    """The job-manager.submit request."""

    jobs: list[NewJob]


class Refusals(msgspec.Struct):
    """The job-manager.submit response: refused jobs with reasons; `full` are users at a limit."""

    errors: list[tuple[JobId, str]]
    full: list[int] | None = None


class Demand(msgspec.Struct, frozen=True):
    """What a jobspec takes of its user's limits."""

    size: int
    """Bytes as JSON, without the environment."""
    stored: int
    """Bytes as JSON, with the environment."""
    costs: dict[str, int]
    """The cost of each key of `attributes.system` that has one: see `formats.jobspec_cost`."""


class RoomWanted(msgspec.Struct):
    """The job-manager.submit-room request: a user, and what each of the jobspecs takes."""

    userid: int
    jobspecs: list[Demand]


class SubmitRoom(msgspec.Struct):
    """The job-manager.submit-room response: for each jobspec a refusal; null if there is room."""

    refusals: list[str | None]


class Info(msgspec.Struct):
    """The job-manager.getinfo response."""

    max_jobid: int


class Stats(msgspec.Struct, frozen=True):
    """What job-ingest.stats-get counts beside requests: batches that are stored or decided on."""

    submitting: int


def _write_new_jobs(new: NewJobs) -> Payload:
    return {"jobs": [msgspec.structs.asdict(job) for job in new.jobs]}


def _write_room_wanted(wanted: RoomWanted) -> Payload:
    return {
        "userid": wanted.userid,
        "jobspecs": [msgspec.structs.asdict(each) for each in wanted.jobspecs],
    }


def _write_refusals(refusals: Refusals) -> Payload:
    payload: dict[str, Any] = {"errors": [list(each) for each in refusals.errors]}
    return payload | {"full": refusals.full} if refusals.full else payload


class _Id(msgspec.Struct):
    id: int


class _Ids(msgspec.Struct):
    jobs: list[_Id]


def jobids_in(message: PayloadMessage) -> set[int]:
    """Return the job ids of a job-manager.submit request that may be wrong. Raises FluxError."""
    return {job.id for job in expect_payload(message, _Ids).jobs}


SUBMIT: Final = codec(Submit)
SUBMITTED: Final = codec(Submitted)
NEW_JOBS: Final[Codec[NewJobs]] = Codec(_write_new_jobs, codec(NewJobs).read)
REFUSALS: Final[Codec[Refusals]] = Codec(_write_refusals, codec(Refusals).read)
ROOM_WANTED: Final[Codec[RoomWanted]] = Codec(_write_room_wanted, codec(RoomWanted).read)
ROOM: Final = codec(SubmitRoom)
INFO: Final = codec(Info)
