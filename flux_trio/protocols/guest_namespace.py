"""The guest namespace of a job (RFC 16), from its start request to its end.

It is OPEN once the namespace is there, has its first events, and is linked at its place below the
job. No start is told before. When the job is over, the content is moved to that place, and only
then is the end told. Who is killed before has told nothing of the end, and his successor is asked
again. The namespace is removed last: while it is there, a successor finds it.

Where the content is written at its place, as in the kvs of this project, it is OPEN at once: it is
made with its first events, for which the start waits, and removed with its last.
"""

from __future__ import annotations

from typing import Final

from flux_trio.protocols.table import JobConversations, Member, Table


class NamespaceState(Member):
    FINDING = "asked what is at its place"
    MAKING = "namespace asked for"
    READING = "it was there: reading its exec eventlog, and how much output it has"
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
    AT_PLACE = "its content is written at its place"
    NOTHING = "nothing at its place, or the link to a namespace"
    MOVED = "its content is at its place"
    MADE = "namespace made"
    EXISTS = "namespace was there"
    READ = "what was there is read"
    WRITTEN = "all that waited is written"
    IN_PLACE = "all that waited is written, at its place"
    LINKED = "linked"
    RELEASED = "final release of the job"
    ROOT = "root of its namespace"
    REMOVED = "namespace removed"
    FAILED = "a kvs error"


_S, _E = NamespaceState, NamespaceEvent

GUEST_NAMESPACE: Table[NamespaceState, NamespaceEvent] = Table(
    "guest namespace",
    _S.FINDING,
    {
        # MOVED: an earlier service was killed after it had moved the content; the rest is due
        _S.FINDING: {
            _E.AT_PLACE: _S.OPEN,
            _E.NOTHING: _S.MAKING,
            _E.MOVED: _S.REMOVING,
            _E.FAILED: _S.BROKEN,
        },
        _S.MAKING: {_E.MADE: _S.FURNISHING, _E.EXISTS: _S.READING, _E.FAILED: _S.BROKEN},
        _S.READING: {_E.READ: _S.FURNISHING, _E.FAILED: _S.BROKEN},
        _S.FURNISHING: {_E.WRITTEN: _S.LINKING, _E.FAILED: _S.BROKEN},
        _S.LINKING: {_E.LINKED: _S.OPEN, _E.FAILED: _S.BROKEN},
        # FAILED: its first events could not be written at their place
        _S.OPEN: {_E.RELEASED: _S.ENDING, _E.FAILED: _S.BROKEN},
        # from here on an error ends the namespace: the job's resources must not wait for it
        _S.ENDING: {_E.WRITTEN: _S.ROOTING, _E.IN_PLACE: _S.CLOSED},
        _S.ROOTING: {_E.ROOT: _S.MOVING, _E.FAILED: _S.CLOSED},
        _S.MOVING: {_E.MOVED: _S.REMOVING, _E.FAILED: _S.CLOSED},
        _S.REMOVING: {_E.REMOVED: _S.CLOSED},  # also if it was not there any more
        _S.CLOSED: {},
        _S.BROKEN: {},
    },
)

OPENING: Final = frozenset({_S.FINDING, _S.MAKING, _S.READING, _S.FURNISHING, _S.LINKING})
"""The states in which the job waits for its namespace."""


class NamespaceStates(JobConversations[NamespaceState, NamespaceEvent]):
    table = GUEST_NAMESPACE
