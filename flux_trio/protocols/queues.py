"""RFC 33, Administrative Tools: a queue accepts jobs or not, and schedules them or not.

An administrator begins, and each request is a conversation of its own:

    administrator  job-manager.queue-enable {name, enable, reason}  → nothing, once it is stored
    administrator  job-manager.queue-start {name, start, reason}    → nothing, once it is stored

The two switches are independent. Setting a switch to its current position has no effect.
"""

from __future__ import annotations

from flux_trio.protocols.table import Conversation, Member, Table


class QueueState(Member):
    """The submission switch, then the scheduling switch."""

    ENABLED_STARTED = "enabled, started"
    ENABLED_STOPPED = "enabled, stopped"
    DISABLED_STARTED = "disabled, started"
    DISABLED_STOPPED = "disabled, stopped"

    @property
    def is_enabled(self) -> bool:
        """Return whether jobs may be submitted."""
        return self in (QueueState.ENABLED_STARTED, QueueState.ENABLED_STOPPED)

    @property
    def is_started(self) -> bool:
        """Return whether the scheduler gets alloc requests."""
        return self in (QueueState.ENABLED_STARTED, QueueState.DISABLED_STARTED)


class QueueEvent(Member):
    """Requests of an administrator."""

    ENABLE = "enable"
    DISABLE = "disable"
    START = "start"
    STOP = "stop"


_S, _E = QueueState, QueueEvent

QUEUE: Table[QueueState, QueueEvent] = Table(
    "queue",
    QueueState.ENABLED_STARTED,  # readings: Named queues
    {
        _S.ENABLED_STARTED: {
            _E.ENABLE: _S.ENABLED_STARTED,
            _E.DISABLE: _S.DISABLED_STARTED,
            _E.START: _S.ENABLED_STARTED,
            _E.STOP: _S.ENABLED_STOPPED,
        },
        _S.ENABLED_STOPPED: {
            _E.ENABLE: _S.ENABLED_STOPPED,
            _E.DISABLE: _S.DISABLED_STOPPED,
            _E.START: _S.ENABLED_STARTED,
            _E.STOP: _S.ENABLED_STOPPED,
        },
        _S.DISABLED_STARTED: {
            _E.ENABLE: _S.ENABLED_STARTED,
            _E.DISABLE: _S.DISABLED_STARTED,
            _E.START: _S.DISABLED_STARTED,
            _E.STOP: _S.DISABLED_STOPPED,
        },
        _S.DISABLED_STOPPED: {
            _E.ENABLE: _S.ENABLED_STOPPED,
            _E.DISABLE: _S.DISABLED_STOPPED,
            _E.START: _S.DISABLED_STARTED,
            _E.STOP: _S.DISABLED_STOPPED,
        },
    },
)


class Switches(Conversation[QueueState, QueueEvent]):
    """How the two switches of one queue are set."""

    table = QUEUE
    kind = "queue"
