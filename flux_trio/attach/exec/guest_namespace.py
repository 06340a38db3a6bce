"""The guest namespace of one job, from its start request to its end: data, and its states.

It is OPEN once the namespace is there, has its first events, and is linked at its place below the
job. What the core reads of a job waits until then: so nothing of it runs before its namespace is
there, and if the namespace cannot be made, the core fails the job. At the final release the content
of the namespace is moved to that place, and only then are the last two answers sent: `finish` and
`release`, in one go. A program that is killed before has told nothing of the end, and the next one
is asked again. The namespace is removed last: while it is there, a successor finds it, even for a
job that flux-core does not ask for again.
"""

from __future__ import annotations

from collections import deque

import msgspec

from flux_trio.attach.exec.guest import Contents, Shell
from flux_trio.formats.meanings import JobId, Matchtag
from flux_trio.messages import Request, Response
from flux_trio.protocols import JobConversations
from flux_trio.protocols.table import Member, Table


class NamespaceState(Member):
    FINDING = "asked what is at its place"
    MAKING = "namespace asked for"
    READING_LOG = "it was there: reading its exec eventlog"
    READING_PLACES = "it was there: reading how much output it has"
    FURNISHING = "writing its first events"
    LINKING = "being linked at its place"
    OPEN = "takes events and output"
    ENDING = "writing its last event"
    ROOTING = "asked for the root of its namespace"
    MOVING = "being moved to its place"
    REMOVING = "moved: its namespace is being removed"
    CLOSED = "moved: it takes no more"
    BROKEN = "could not be made"


class NamespaceEvent(Member):
    NOTHING = "nothing at its place, or the link to a namespace"
    MOVED = "its content is at its place"
    MADE = "namespace made"
    EXISTS = "namespace was there"
    LOG_READ = "exec eventlog read"
    PLACES_READ = "places read"
    WRITTEN = "all that waited is written"
    LINKED = "linked"
    RELEASED = "final release of the job"
    ROOT = "root of its namespace"
    REMOVED = "namespace removed"
    FAILED = "an error of the kvs"


_S, _E = NamespaceState, NamespaceEvent

GUEST_NAMESPACE: Table[NamespaceState, NamespaceEvent] = Table(
    "guest namespace",
    _S.FINDING,
    {
        _S.FINDING: {_E.NOTHING: _S.MAKING, _E.MOVED: _S.REMOVING, _E.FAILED: _S.BROKEN},
        _S.MAKING: {_E.MADE: _S.FURNISHING, _E.EXISTS: _S.READING_LOG, _E.FAILED: _S.BROKEN},
        _S.READING_LOG: {_E.LOG_READ: _S.READING_PLACES, _E.FAILED: _S.BROKEN},
        _S.READING_PLACES: {_E.PLACES_READ: _S.FURNISHING, _E.FAILED: _S.BROKEN},
        _S.FURNISHING: {_E.WRITTEN: _S.LINKING, _E.FAILED: _S.BROKEN},
        _S.LINKING: {_E.LINKED: _S.OPEN, _E.FAILED: _S.BROKEN},
        _S.OPEN: {_E.RELEASED: _S.ENDING},
        # from here on an error ends the namespace: the job's resources must not wait for it
        _S.ENDING: {_E.WRITTEN: _S.ROOTING},
        _S.ROOTING: {_E.ROOT: _S.MOVING, _E.FAILED: _S.CLOSED},
        _S.MOVING: {_E.MOVED: _S.REMOVING, _E.FAILED: _S.CLOSED},
        _S.REMOVING: {_E.REMOVED: _S.CLOSED},
        _S.CLOSED: {},
        _S.BROKEN: {},
    },
)


class NamespaceStates(JobConversations[NamespaceState, NamespaceEvent]):
    table = GUEST_NAMESPACE


class GuestNamespace(msgspec.Struct, eq=False):
    """One namespace, while the job is the core's."""

    id: JobId
    userid: int
    shell: Shell
    contents: Contents
    wake: bool = False  # flux-core does not ask for the job, and waits for its end
    writing: bool = False  # a WRITE is under way
    refusal: tuple[int, str] = (0, "")  # why it is BROKEN: errnum and text
    held: list[Request] = []  # lookups of the core that wait until the namespace is OPEN
    has_begun: bool = False  # the job runs
    stream: Matchtag = 0  # of the core's output stream; 0 before its first and after its last piece
    npieces: int = 0  # of output that wait to be written
    end: Request | None = None  # the core's commit of the job's end
    status: int = 0  # wait(2) status, in that commit
    last: list[Response] = []  # answers that wait until the namespace is moved, or CLOSED
    is_told: bool = False  # they are sent
    inputs: deque[Input] = msgspec.field(default_factory=deque)
    input_bytes: int = 0  # in `inputs`

    @property
    def namespace(self) -> str:
        return f"job-{self.id}"

    @property
    def ntasks(self) -> int:
        return len(self.shell.nodes)


class Input(msgspec.Struct, frozen=True):
    """Standard input for all tasks; `request` is answered when they have taken it."""

    data: bytes
    eof: bool
    request: Request | None  # None if more pieces of the same request follow
