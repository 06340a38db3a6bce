"""RFC 32, Flux Job Execution Protocol: the payloads between job manager and execution service."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from flux_trio.editions.codec import Codec, PayloadMessage, codec, of_other_edition, read_r
from flux_trio.editions.rfc21 import Severity
from flux_trio.formats import ResourceSet
from flux_trio.formats.meanings import JobId, JsonObject
from flux_trio.messages import Errno, FluxError, Payload, expect_payload


class StartType(StrEnum):
    """The `type` of a <service>.start response; the classic edition has no `reattached`."""

    START = "start"
    REATTACHED = "reattached"
    RELEASE = "release"
    EXCEPTION = "exception"
    FINISH = "finish"


class Hello(msgspec.Struct, frozen=True):
    """The job-manager.exec-hello request."""

    service: Annotated[str, msgspec.Meta(min_length=1)]


class Start(msgspec.Struct):
    """The <service>.start request; `R` is what the job was allocated, if the edition has the key.

    `R` is None for a job whose R the job manager could not read.
    """

    id: JobId
    userid: int
    jobspec: JsonObject
    reattach: bool
    R: ResourceSet | None = None


class _Start(msgspec.Struct):
    id: int
    userid: int
    jobspec: dict[str, Any]
    reattach: bool
    R: dict[str, Any] | None = None


def _write_start(start: Start) -> dict[str, Any]:
    return {
        "id": start.id,
        "userid": start.userid,
        "jobspec": start.jobspec,
        "reattach": start.reattach,
    }


def _write_start_with_r(start: Start) -> Payload:
    payload = _write_start(start)
    return payload if start.R is None else payload | {"R": start.R.to_json()}


def _read_start(message: PayloadMessage) -> Start:
    read = expect_payload(message, _Start)
    return Start(read.id, read.userid, read.jobspec, read.reattach)


def _read_start_with_r(message: PayloadMessage) -> Start:
    read = expect_payload(message, _Start)
    resources = read_r(message, read.R)
    return Start(read.id, read.userid, read.jobspec, read.reattach, resources)


class Started(msgspec.Struct, frozen=True):
    """The job's shells were started."""


class Reattached(msgspec.Struct, frozen=True):
    """The job's shells still run; an earlier execution service had started them."""


class Released(msgspec.Struct, frozen=True):
    """`ranks`, an idset of execution targets, are released; with `final` they are the last."""

    ranks: str
    final: bool


class RaisedException(msgspec.Struct, frozen=True):
    """An exception; the note is optional on the wire."""

    severity: Severity
    type: str
    note: str = ""


class Finished(msgspec.Struct, frozen=True):
    """The shells have ended; `status` is the greatest wait(2) status."""

    status: int


Report: TypeAlias = Started | Reattached | Released | RaisedException | Finished


class StartAnswer(msgspec.Struct, frozen=True, gc=False):
    """A <service>.start response."""

    id: JobId
    report: Report


class _Answer(msgspec.Struct):
    id: int
    type: str
    data: dict[str, Any]


_CLASSIC: Final[Mapping[str, type[Report]]] = {
    StartType.START.value: Started,
    StartType.RELEASE.value: Released,
    StartType.EXCEPTION.value: RaisedException,
    StartType.FINISH.value: Finished,
}
_CURRENT: Final[Mapping[str, type[Report]]] = {**_CLASSIC, StartType.REATTACHED.value: Reattached}


def _answers(types: Mapping[str, type[Report]]) -> Codec[StartAnswer]:
    """Return the codec of an edition in which `type` has these values."""
    names = {report: name for name, report in types.items()}

    def write(answer: StartAnswer) -> Payload:
        report = answer.report
        data = msgspec.structs.asdict(report)
        return {"id": answer.id, "type": names[type(report)], "data": data}

    def read(message: PayloadMessage) -> StartAnswer:
        answer = expect_payload(message, _Answer)
        shape = types.get(answer.type)
        if answer.type == StartType.REATTACHED and shape is None:
            raise of_other_edition(message, "current")
        if shape is None:
            text = f"{message.topic}: payload: expected a type of {', '.join(types)}"
            raise FluxError(Errno.EPROTO, f"{text}, got {answer.type!r:.80}")
        try:
            report: Report = msgspec.convert(answer.data, shape)
        except msgspec.ValidationError as error:
            text = f"{message.topic}: {answer.type}: data: {error}"
            raise FluxError(Errno.EPROTO, text) from None
        return StartAnswer(answer.id, report)

    return Codec(write, read)


HELLO: Final = codec(Hello)
START_WITHOUT_R: Final[Codec[Start]] = Codec(_write_start, _read_start)
START: Final = Codec(_write_start_with_r, _read_start_with_r)
CLASSIC_ANSWERS: Final = _answers(_CLASSIC)
CURRENT_ANSWERS: Final = _answers(_CURRENT)
