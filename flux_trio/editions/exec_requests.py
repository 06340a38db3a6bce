"""What commands and the job manager ask the execution service beside RFC 32; our own payloads."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from flux_trio.editions.codec import codec
from flux_trio.editions.common import CreditKey
from flux_trio.formats.meanings import JobId, Time


class Input(msgspec.Struct, frozen=True):
    """The <service>.input request; `data` is base64 in the message."""

    id: JobId
    data: bytes = b""
    eof: bool = False


class InputTaken(msgspec.Struct, frozen=True):
    """The <service>.input response; `open`: more input can be taken."""

    open: bool


class Attach(msgspec.Struct, frozen=True):
    """The <service>.attach request; the responses are RFC 24's."""

    id: JobId
    credit: CreditKey | None = None


class Expiration(msgspec.Struct, frozen=True):
    """flux-core's <service>.expiration request, in seconds since the Unix epoch; 0: no limit.

    The response is empty; after an error the job manager raises an exception that does not end the
    job.
    """

    id: JobId
    expiration: Annotated[Time, msgspec.Meta(ge=0)]


class ExecPlace(msgspec.Struct, frozen=True):
    """Who runs jobs: the exec-service event, and the job-manager.exec-service response.

    `service` is "" while there is no service. Then job-exec may say hello if the place is `vacant`:
    no job has started at another service without its final release.
    """

    service: str
    vacant: bool


class Stats(msgspec.Struct, frozen=True):
    """What <service>.stats-get counts beside requests: jobs by phase."""

    jobs: dict[str, int]


INPUT: Final = codec(Input)
INPUT_TAKEN: Final = codec(InputTaken)
ATTACH: Final = codec(Attach)
EXPIRATION: Final = codec(Expiration)
PLACE: Final = codec(ExecPlace)
