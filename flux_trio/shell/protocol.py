"""The messages between the exec service and the shell host, and the names of files on disk.

A message is a length of four bytes, most significant first, and then JSON, over the Unix socket
`shell.sock` of the shell host's directory. A client sends requests; the host sends every notice to
every client. A request changes the state of a job and a notice reports it, so there are no
responses to single requests, and a client that connects again asks with `Start`, `Attach` or
`List`. The only exception is input: each `Feed` gets one `Fed`, sent to the same client.
"""

from __future__ import annotations

from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

SOCKET_NAME: Final = "shell.sock"
LOCK_NAME: Final = "host.lock"
LOG_NAME: Final = "host.log"
SHELL_DIRECTORY: Final = "shell"  # of the shell host, in the state directory
JOBS_NAME: Final = "jobs"
TMP_NAME: Final = "tmp"  # has a directory for each job that wants one

# Limit of one message. The largest one has a job's environment and its tasks; Linux itself limits
# arguments and environment to some megabytes. The connection of a peer that sends more is closed.
MESSAGE_BYTES_MAX: Final = 16 << 20

ALREADY_RUNNING: Final = 3
"""Exit code of a shell host that found another one in its directory."""

PMI_VALUE_CHARS_MAX: Final = 1024  # of one value that the tasks of a job tell each other

STREAMS: Final = ("stdout", "stderr")
_SUFFIX: Final = {"stdout": "out", "stderr": "err"}
_LENGTH_BYTES: Final = 4


def output_name(jobid: int, taskid: int, stream: str) -> str:
    """Return the name of the file with a task's output, in `JOBS_NAME` of the host's directory."""
    return f"{jobid}.{taskid}.{_SUFFIX[stream]}"


def lines_name(jobid: int, taskid: int, stream: str) -> str:
    """Return the name of the file with output of a task that is yet to be labeled, beside it."""
    return f"{output_name(jobid, taskid, stream)}.lines"


class Task(msgspec.Struct, frozen=True):
    """One process: its variables in addition to the job's, its cores, and its files.

    `files` has the files of standard streams that replace the shell host's own, by stream; `argv`
    is its command if it differs from the job's.
    """

    taskid: int
    env: dict[str, str]
    cores: list[int]
    files: dict[str, str] = {}
    argv: list[str] = []


class TravelingFile(msgspec.Struct, frozen=True):
    """A file that a jobspec has brought along, for the directory of its job."""

    name: str  # relative, without ..
    data: bytes
    mode: int


class Start(msgspec.Struct, frozen=True, tag=True):
    """Launch a job; if its id was started here before, only report its state.

    A start that was `Postponed` may be sent again, and goes on at the first waiting task. With
    `input` the standard input of each task is a pipe that `Feed` writes to. `limits` are soft
    limits of the tasks by name, for example `nofile`. With `append` output files are not truncated.
    With `pmi` the tasks have PMI, and find these values in it from the start. With `tmpdir` the job
    has a directory of its own, with `files` in it. The lines of the streams in `labeled` say in
    their files which task wrote them.
    """

    id: int
    argv: list[str]
    env: dict[str, str]
    cwd: str
    tasks: list[Task]
    input: bool = False
    limits: dict[str, int] = {}
    append: bool = False
    pmi: dict[str, str] | None = None
    tmpdir: bool = False
    files: list[TravelingFile] = []
    labeled: list[str] = []


class Attach(msgspec.Struct, frozen=True, tag=True):
    """Report the state of a job; do not launch its tasks, now or later."""

    id: int


class Signal(msgspec.Struct, frozen=True, tag=True):
    """Send `signum` to the process group of every running task."""

    id: int
    signum: int


class Survey(msgspec.Struct, frozen=True, tag=True):
    """Report which tasks of a job have a process; the answer is lost if that cannot be seen now."""

    id: int


class Identify(msgspec.Struct, frozen=True, tag=True):
    """Tell which processes the running tasks of a job are; only the sender gets the answer."""

    id: int


class Feed(msgspec.Struct, frozen=True, tag=True):
    """Write `data` to the standard input of tasks of a job; with `eof`, then close it.

    Without `tasks` it is for all of them.
    """

    id: int
    data: bytes
    eof: bool
    tasks: list[int] | None = None


class Ack(msgspec.Struct, frozen=True, tag=True):
    """Forget a job that has ended, and remove its output: the client has stored both."""

    id: int


class List(msgspec.Struct, frozen=True, tag=True):
    """Ask for the jobs that have ended and are not acknowledged."""


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """End the host if no process runs and no other client is connected."""


class Failure(msgspec.Struct, frozen=True):
    """A task that could not be launched; the tasks after it were not tried."""

    taskid: int
    text: str


class Started(msgspec.Struct, frozen=True, tag=True):
    """All tasks of a job were launched, or all tasks before the one that failed."""

    id: int
    failure: Failure | None = None


class Postponed(msgspec.Struct, frozen=True, tag=True):
    """The host lacks a resource, named in `text`, to launch the job or the rest of its tasks.

    The job has not failed: the client may send `Start` again, or give up with `Attach`.
    """

    id: int
    text: str


class FirstExit(msgspec.Struct, frozen=True, tag=True):
    """A task of a job has ended, the first one; others still run.

    `status` is the wait(2) status that its shell would have; `how` tells the end of the task in
    words, "" if it is not known.
    """

    id: int
    taskid: int
    status: int
    how: str


class WantsPmi(msgspec.Struct, frozen=True, tag=True):
    """A task of a job has asked for PMI, for which there was no room: see `pmi`."""

    id: int


class TaskSize(msgspec.Struct, frozen=True):
    """How many bytes a task has written."""

    taskid: int
    stdout: int
    stderr: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """All processes of a job have ended.

    `status` is the greatest wait(2) status of its tasks, where a task that signal N has killed
    counts as one that has exited with 128+N; `lost` are the tasks that ended while no
    shell host was there to reap them. `sizes` leaves out tasks without output. `damage` names the
    files of the job that are not as the host has written them, and says what is wrong.
    """

    id: int
    status: int
    ntasks: int
    lost: list[int] = []
    sizes: list[TaskSize] = []
    damage: list[str] = []


class Survivors(msgspec.Struct, frozen=True, tag=True):
    """The tasks of a job that run, or have left processes; in ascending order."""

    id: int
    tasks: list[int]


class Processes(msgspec.Struct, frozen=True, tag=True):
    """The process ids of the tasks that run, on the machine `host`; none of an unknown job."""

    id: int
    host: str
    pids: dict[int, int]


class Fed(msgspec.Struct, frozen=True, tag=True):
    """Every task has taken the data of a `Feed` to it, or has closed its input.

    `open` says whether a task can take more; `refusal` says why the job has no input pipes.
    """

    id: int
    open: bool
    refusal: str = ""


class Unknown(msgspec.Struct, frozen=True, tag=True):
    """The job of an `Attach` was never started here, or was acknowledged."""

    id: int


class Listing(msgspec.Struct, frozen=True, tag=True):
    ended: list[int]


ShellRequest: TypeAlias = Start | Attach | Signal | Survey | Identify | Feed | Ack | List | Shutdown
ShellNotice: TypeAlias = (
    Started
    | Postponed
    | FirstExit
    | WantsPmi
    | Done
    | Survivors
    | Processes
    | Fed
    | Unknown
    | Listing
)

REQUESTS: Final = msgspec.json.Decoder[ShellRequest](ShellRequest)
NOTICES: Final = msgspec.json.Decoder[ShellNotice](ShellNotice)
_encode = msgspec.json.Encoder().encode

M = TypeVar("M")


class ShellProtocolError(Exception):
    """The peer broke the framing, or sent another message than those above."""


def frame(message: ShellRequest | ShellNotice) -> bytes:
    """Return the bytes of one message. Raises ShellProtocolError if it is too long."""
    body = _encode(message)
    if len(body) > MESSAGE_BYTES_MAX:
        raise ShellProtocolError(
            f"{type(message).__name__}: expected at most {MESSAGE_BYTES_MAX} bytes, got {len(body)}"
        )
    return len(body).to_bytes(_LENGTH_BYTES) + body


class Unframer(Generic[M]):
    """Splits a stream of bytes into messages."""

    def __init__(self, decoder: msgspec.json.Decoder[M]) -> None:
        self._decode = decoder.decode
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[M]:
        """Return the messages that `data` completes. Raises ShellProtocolError."""
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
