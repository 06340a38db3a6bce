"""RFC 28: one resource group between scheduler and resource service.

The scheduler begins, and has the group until it leaves:

    scheduler  resource.acquire  → grow: R, and which targets are up; then, for as long as the
                                   stream is open, each change: grow, shrink, online, offline
    scheduler  resource.release  → nothing; for shrunk targets, once no job is on them

In the current edition a shrink is not followed by a release. The stream ends by an error response,
or with the scheduler.

`ACQUIRE` follows the stream of one group. Each side keeps the targets that are up, and those that
must still be released after a shrink. The table says that a release needs a shrink.
"""

from __future__ import annotations

from flux_trio.protocols.table import Conversation, Member, Table


class AcquireState(Member):
    """State of one group's stream."""

    IDLE = "not acquired"
    REQUESTED = "resource.acquire sent, no grow yet"
    ACQUIRED = "resources acquired"
    SHRINKING = "shrunk targets not all released"


class AcquireEvent(Member):
    """Messages between the two sides about one group, and their loss."""

    ACQUIRE = "resource.acquire"
    GROW = "grow"
    SHRINK = "shrink"
    ONLINE = "online"
    OFFLINE = "offline"
    RELEASE = "resource.release, some"
    RELEASE_LAST = "resource.release, the last"
    ERROR = "error response"
    DISCONNECT = "disconnect"


_S, _E = AcquireState, AcquireEvent

ACQUIRE: Table[AcquireState, AcquireEvent] = Table(
    "resource.acquire",
    AcquireState.IDLE,
    {
        _S.IDLE: {_E.ACQUIRE: _S.REQUESTED},
        _S.REQUESTED: {_E.GROW: _S.ACQUIRED, _E.ERROR: _S.IDLE, _E.DISCONNECT: _S.IDLE},
        _S.ACQUIRED: {
            _E.GROW: _S.ACQUIRED,
            _E.ONLINE: _S.ACQUIRED,
            _E.OFFLINE: _S.ACQUIRED,
            _E.SHRINK: _S.SHRINKING,
            _E.ERROR: _S.IDLE,
            _E.DISCONNECT: _S.IDLE,
        },
        # the stream goes on while targets are released, and more may be shrunk
        _S.SHRINKING: {
            _E.GROW: _S.SHRINKING,
            _E.ONLINE: _S.SHRINKING,
            _E.OFFLINE: _S.SHRINKING,
            _E.SHRINK: _S.SHRINKING,
            _E.RELEASE: _S.SHRINKING,
            _E.RELEASE_LAST: _S.ACQUIRED,
            _E.ERROR: _S.IDLE,
            _E.DISCONNECT: _S.IDLE,
        },
    },
)


class GroupStream(Conversation[AcquireState, AcquireEvent]):
    """Where the stream of one group stands."""

    table = ACQUIRE
    kind = "resource group"
