"""The inputs and actions of the exec core, its open calls, and the timers that it has set."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from flux_trio import formats
from flux_trio.cores.exec.vocabulary import OutputRead, ReadOutput, ShellInput, ToShell
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.turns import CommonAction, CommonInput
from flux_trio.formats.meanings import JobId


class HelloSaid(msgspec.Struct, frozen=True):
    """Answers job-manager.exec-hello."""


class ServiceAsked(msgspec.Struct, frozen=True):
    """Answers job-manager.exec-service: whether another service runs jobs."""


class JournalFollowed(msgspec.Struct, frozen=True):
    """Answers job-manager.journal: each response has events."""


class TargetsAsked(msgspec.Struct, frozen=True):
    """Answers resource.status."""


class StoredKey(Enum):
    """Values that are read before a job starts, each by the last part of its key."""

    R = "R"
    JOBSPEC = "jobspec"
    EVENTLOG = formats.EVENTLOG
    EXEC_LOG = "guest.exec.eventlog"
    PLACES = "guest.flux-trio-written"


class KeyRead(msgspec.Struct, frozen=True):
    """Answers the read of `key` of the job `id`, which is being prepared."""

    id: JobId
    key: StoredKey


class ExpirationRead(msgspec.Struct, frozen=True):
    """Answers the read of the eventlog of the job `id`, which runs."""

    id: JobId


class EndRead(msgspec.Struct, frozen=True):
    """Answers the read of the stored end of a job that the shell host still has."""

    id: JobId


class GuestStep(Enum):
    """What a job's guest namespace asks of the kvs. It has one of these calls open at a time."""

    FIND = "what is at its place below the job"
    MAKE = "a new namespace"
    READ_LOG = "the exec eventlog that an earlier service has left"
    READ_PLACES = "how much output an earlier service has left"
    LINK = "the link to the namespace"
    WRITE = "events and output"
    ROOT = "the root of the namespace"
    MOVE = "the content at its place below the job"
    REMOVE = "the end of the namespace"


class GuestCall(msgspec.Struct, frozen=True):
    """Answers a request of a job's guest namespace with this `number`."""

    id: JobId
    number: int
    step: GuestStep
    nbytes: int = 0  # of output, in a WRITE


class GuestsWritten(msgspec.Struct, frozen=True):
    """Answers one commit of what several jobs have written at their places."""

    calls: list[GuestCall]


ExecCall: TypeAlias = (
    HelloSaid
    | ServiceAsked
    | JournalFollowed
    | TargetsAsked
    | KeyRead
    | ExpirationRead
    | EndRead
    | GuestCall
    | GuestsWritten
)


class TimerKind(Enum):
    """What a timer of the exec core is for."""

    END = "a simulated job's end, or a time limit"
    WARN = "a signal that the job asked for, before its time limit"
    EXIT = "a job whose first task has exited fails, while others run"
    KILL = "SIGKILL for processes that still run after the first signal"
    INPUT = "input that was collected is to be logged"
    STUCK = "processes that still run long after SIGKILL"
    RETRY = "starts that the shell host could not do"
    POLL = "output that is copied may have grown"
    PLACE = "the service that runs jobs in place of this one may have left"
    AGAIN = "requests that were refused"
    UNREAD = "R that the kvs has refused"

    __hash__ = object.__hash__  # Enum's own is slow, and timers are looked up often


JobTimer: TypeAlias = Literal[
    TimerKind.END, TimerKind.WARN, TimerKind.EXIT, TimerKind.KILL, TimerKind.STUCK, TimerKind.INPUT
]
"""The kinds of timers that each job has for itself."""


class TimerKey(NamedTuple):
    """The keys of the exec core's timers; the last five kinds have one timer each."""

    kind: TimerKind
    id: JobId = 0


POLL: TimerKey = TimerKey(TimerKind.POLL)
RETRY: TimerKey = TimerKey(TimerKind.RETRY)
PLACE: TimerKey = TimerKey(TimerKind.PLACE)
PLACE_S: Final = 2.0
"""Seconds in which a service that ran jobs in place of this one is back at the next job manager."""
AGAIN: TimerKey = TimerKey(TimerKind.AGAIN)
AGAIN_S: Final = 1.0
"""Seconds until a request is sent again that was refused by a full inbox."""
UNREAD: TimerKey = TimerKey(TimerKind.UNREAD)
UNREAD_S: Final = (1.0, 60.0)
"""Seconds until R is asked for again that the kvs has refused: first, and at most."""

ExecOwnInput: TypeAlias = OutputRead | ShellInput
ExecOwnAction: TypeAlias = ToShell | ReadOutput
ExecInput: TypeAlias = CommonInput[TimerKey] | ExecOwnInput
ExecAction: TypeAlias = CommonAction[TimerKey] | ExecOwnAction
ExecOutbox: TypeAlias = Outbox[ExecCall, ExecAction, TimerKey]
