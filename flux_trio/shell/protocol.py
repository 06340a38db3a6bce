"""What the exec service and the shell host say to each other, and where things are on disk.

Messages are JSON behind a length of four bytes, most significant first, over the Unix socket
`shell.sock` of the shell host's directory. A client sends requests; every client is sent every
notice. But for input nothing has an answer of its own: a request changes what is true of a job,
notices say what is true, and a client that comes back asks again with `Start`, `Attach` or `List`.
Each `Feed` is answered by one `Fed`, sent to who sent it.
"""

from __future__ import annotations

from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

SOCKET_NAME: Final = "shell.sock"
LOCK_NAME: Final = "host.lock"
LOG_NAME: Final = "host.log"
JOBS_NAME: Final = "jobs"

# One message. The largest carries a job's environment and its tasks; Linux itself takes no
# argument and environment beyond some megabytes. A peer that sends more is cut off.
MESSAGE_BYTES_MAX: Final = 16 << 20

STREAMS: Final = ("stdout", "stderr")
_SUFFIX: Final = {"stdout": "out", "stderr": "err"}
_LENGTH_BYTES: Final = 4


def output_name(jobid: int, taskid: int, stream: str) -> str:
    """Where the output of a task is, below the shell host's directory."""
    return f"{JOBS_NAME}/{jobid}.{taskid}.{_SUFFIX[stream]}"


class Task(msgspec.Struct, frozen=True):
    """One process: what it has in its environment beside the job's, its cores, and its files.

    `files` are those of standard streams that are not the shell host's own, by stream; `argv` is
    its command if that is not the job's.
    """

    taskid: int
    env: dict[str, str]
    cores: list[int]
    files: dict[str, str] = {}
    argv: list[str] = []


class Start(msgspec.Struct, frozen=True, tag=True):
    """Launch a job, unless its id was ever started here: then just say how it is.

    A start that was `Postponed` may be sent again, and goes on where it came to.

    With `input` the standard input of each task is a pipe that `Feed` writes to. `limits` are soft
    limits of the tasks by name, such as `nofile`. With `append` files for output are not emptied.
    """

    id: int
    argv: list[str]
    env: dict[str, str]
    cwd: str
    tasks: list[Task]
    input: bool = False
    limits: dict[str, int] = {}
    append: bool = False


class Attach(msgspec.Struct, frozen=True, tag=True):
    """Say how a job is; launch nothing of it, now or later."""

    id: int


class Signal(msgspec.Struct, frozen=True, tag=True):
    """Send `signum` to the process group of every task that runs."""

    id: int
    signum: int


class Feed(msgspec.Struct, frozen=True, tag=True):
    """Write `data` to the standard input of every task of a job; with `eof` close it then."""

    id: int
    data: bytes
    eof: bool


class Ack(msgspec.Struct, frozen=True, tag=True):
    """The end of a job is known and kept elsewhere: forget it, with its output."""

    id: int


class List(msgspec.Struct, frozen=True, tag=True):
    """Say which jobs have ended and are not acknowledged."""


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """End, if nothing runs."""


class Failure(msgspec.Struct, frozen=True):
    """A task that could not be launched; the tasks after it were not tried."""

    taskid: int
    text: str


class Started(msgspec.Struct, frozen=True, tag=True):
    """Every task of a job has been launched, or all up to the one that failed."""

    id: int
    failure: Failure | None = None


class Postponed(msgspec.Struct, frozen=True, tag=True):
    """The host lacks something that it needs to launch the job, or the rest of its tasks.

    `text` says what. That is no failure of the job: `Start` may be sent again, `Attach` gives up.
    """

    id: int
    text: str


class TaskSize(msgspec.Struct, frozen=True):
    """How many bytes a task has written."""

    taskid: int
    stdout: int
    stderr: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """Nothing of a job runs any more.

    `status` is the greatest wait(2) status of its tasks; `lost` are those that ended while no shell
    host was there to learn how. Tasks that wrote nothing are not in `sizes`.
    """

    id: int
    status: int
    ntasks: int
    lost: list[int] = []
    sizes: list[TaskSize] = []


class Fed(msgspec.Struct, frozen=True, tag=True):
    """Every task has taken what a `Feed` brought, or takes no more.

    `open` says whether any task could take more, `refusal` why none was ever written to.
    """

    id: int
    open: bool
    refusal: str = ""


class Unknown(msgspec.Struct, frozen=True, tag=True):
    """The job of an `Attach` was never started here, or has been acknowledged."""

    id: int


class Listing(msgspec.Struct, frozen=True, tag=True):
    ended: list[int]


ShellRequest: TypeAlias = Start | Attach | Signal | Feed | Ack | List | Shutdown
ShellNotice: TypeAlias = Started | Postponed | Done | Fed | Unknown | Listing

REQUESTS: Final = msgspec.json.Decoder[ShellRequest](ShellRequest)
NOTICES: Final = msgspec.json.Decoder[ShellNotice](ShellNotice)
_encode = msgspec.json.Encoder().encode

M = TypeVar("M")


class ShellProtocolError(Exception):
    """The other side did not keep to the framing or to the messages above."""


def frame(message: ShellRequest | ShellNotice) -> bytes:
    """The bytes of one message. Raises ShellProtocolError when it is too long."""
    body = _encode(message)
    if len(body) > MESSAGE_BYTES_MAX:
        raise ShellProtocolError(
            f"{type(message).__name__}: expected at most {MESSAGE_BYTES_MAX} bytes, got {len(body)}"
        )
    return len(body).to_bytes(_LENGTH_BYTES) + body


class Unframer(Generic[M]):
    """Messages out of a stream of bytes that comes in pieces."""

    def __init__(self, decoder: msgspec.json.Decoder[M]) -> None:
        self._decode = decoder.decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[M]:
        """The messages completed by `data`. Raises ShellProtocolError."""
        self._buffer += data
        messages = []
        start = 0
        while len(self._buffer) - start >= _LENGTH_BYTES:
            body = start + _LENGTH_BYTES
            length = int.from_bytes(self._buffer[start:body])
            if length > MESSAGE_BYTES_MAX:
                raise ShellProtocolError(
                    f"expected a message of at most {MESSAGE_BYTES_MAX} bytes, got {length}"
                )
            if len(self._buffer) < body + length:
                break
            start = body + length
            messages.append(self._message(bytes(self._buffer[body:start])))
        del self._buffer[:start]
        return messages

    def _message(self, body: bytes) -> M:
        try:
            return self._decode(body)
        except msgspec.MsgspecError as error:
            raise ShellProtocolError(f"expected a message, got {body[:80]!r}: {error}") from None
