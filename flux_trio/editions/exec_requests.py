"""What commands and the job manager ask the execution service beside RFC 32; our own payloads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from flux_trio.editions import rfc24
from flux_trio.editions.codec import codec
from flux_trio.formats import FormatError, format_fluid, parse_fluid, taskmap_blocks
from flux_trio.formats.meanings import JobId, Time
from flux_trio.messages import Errno, FluxError, Request, expect_payload

STDIN_METHOD: Final = "stdin"
PROCTABLE_METHOD: Final = "proctable"
SHELL_SERVICE: Final = "-shell-"
"""Between a userid and a job id: the service by which Flux's own programs reach a job's shell."""


class Input(msgspec.Struct, frozen=True):
    """The <service>.input request; `data` is base64 in the message."""

    id: JobId
    data: bytes = b""
    eof: bool = False
    ranks: str = rfc24.ALL  # the tasks that read it, an idset


class InputTaken(msgspec.Struct, frozen=True):
    """The <service>.input response; `open`: more input can be taken."""

    open: bool


class Stdin(msgspec.Struct, frozen=True):
    """Standard input that Flux's own programs send to a job's shell (RFC 24)."""

    stream: Literal["stdin"] = "stdin"  # no other one can be written to
    rank: str = rfc24.ALL  # the tasks that read it, an idset
    data: str = ""  # what the tasks read
    encoding: str | None = None  # base64; none: data is text
    eof: bool = False  # the tasks read the end of the file


class ProcessTable(msgspec.Struct, frozen=True):
    """The answer to a job's `proctable`, task by task (flux-core, mpir: no RFC has it).

    Numbers are told as differences: each less the one before, the first less 0.
    """

    hosts: list[str]
    executables: list[str]
    ids: list[int]  # of the tasks
    pids: list[int]
    ranks: list[int]


class Override(msgspec.Struct, frozen=True):
    """flux-core's <service>.override request, about a simulated job that waits for it."""

    event: Literal["start", "finish"]
    jobid: JobId
    status: int = 0  # the wait(2) status with which it ends


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


class Service(msgspec.Struct, frozen=True):
    """The broker.register and broker.unregister requests: a service name."""

    service: str


class Copy(msgspec.Struct, frozen=True):
    """The <service>.copy request: store the output of a job in the kvs while the job runs.

    The response is empty, and comes when what is there already is stored.
    """

    id: JobId


class ShellInit(msgspec.Struct, frozen=True, rename="kebab"):
    """flux-core's `shell.init` in guest.exec.eventlog; `size` is the number of nodes.

    `service` takes standard input at `leader_rank`.
    """

    service: str
    leader_rank: int
    size: int


class ShellExit(msgspec.Struct, frozen=True):
    """flux-core's `shell-exit`: the wait(2) status of the shell of a rank."""

    rank: int
    wait_status: int


def taskmap(nodes: Sequence[int]) -> dict[str, Any]:
    """The context of flux-core's `shell.start` (RFC 34); `nodes` has the node of each task."""
    return {"taskmap": {"version": 1, "map": taskmap_blocks(nodes)}}


def stdin(service: str) -> dict[str, Any]:
    """The value of a jobspec's option: standard input is what commands send, or else a file."""
    return {"type": service}


def shell_service(userid: int, jobid: JobId) -> str:
    """Return the name of the service that takes a job's standard input."""
    return f"{userid}{SHELL_SERVICE}{format_fluid(jobid, 'f58plain')}"


def job_of_shell(topic: str) -> JobId | None:
    """Return the job whose shell a request is for; None for a request that is not served."""
    service, _, method = topic.partition(".")
    _, is_shell, jobid = service.partition(SHELL_SERVICE)
    if not is_shell or method not in (STDIN_METHOD, PROCTABLE_METHOD):
        return None
    try:
        return parse_fluid(jobid)
    except FormatError:
        return None


def input_in(jobid: JobId, message: Request) -> Input:
    """What the tasks of a job are to read. Raises FluxError(EPROTO)."""
    if not isinstance(message.payload, dict):
        raise FluxError(Errno.EPROTO, f"{message.topic}: payload: expected an object")
    sent = expect_payload(message, Stdin)
    try:
        data = rfc24.bytes_of(msgspec.structs.asdict(sent))
    except ValueError as error:
        raise FluxError(Errno.EPROTO, f"{message.topic}: {error}") from None
    return Input(jobid, data, sent.eof, sent.rank)


class Stats(msgspec.Struct, frozen=True):
    """What <service>.stats-get counts beside requests: jobs by phase."""

    jobs: dict[str, int]


INPUT: Final = codec(Input)
INPUT_TAKEN: Final = codec(InputTaken)
PROCESS_TABLE: Final = codec(ProcessTable)
COPY: Final = codec(Copy)
OVERRIDE: Final = codec(Override)
EXPIRATION: Final = codec(Expiration)
PLACE: Final = codec(ExecPlace)
SERVICE: Final = codec(Service)
