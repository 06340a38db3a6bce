"""Events of jobs, as the job manager logs them."""

from __future__ import annotations

from typing import Any

from flux_trio.formats import Event
from flux_trio.protocols import submit_event

T_SUBMIT = 1000.0
USERID = 2000


def event(name: str, t: float = T_SUBMIT, **context: Any) -> Event:
    """The event `name` at time `t`; without a context when none is given."""
    return Event(t, name, context or None)


def submitted(
    t: float = T_SUBMIT, *, userid: int = USERID, urgency: int = 16, flags: int = 0
) -> Event:
    """The first event."""
    return submit_event(t, userid, urgency, flags)


def pending(t: float = T_SUBMIT, *, userid: int = USERID, priority: int = 16) -> list[Event]:
    """From submit to SCHED, all at `t`."""
    return [
        submitted(t, userid=userid),
        event("validate", t),
        event("depend", t),
        event("priority", t, priority=priority),
    ]


def running(t: float = T_SUBMIT, **how: int) -> list[Event]:
    """Pending at `t`, alloc a second later, start another one later."""
    return [*pending(t, **how), event("alloc", t + 1), event("start", t + 2)]


def inactive(t: float = T_SUBMIT, *, status: int = 0, **how: int) -> list[Event]:
    """Running as above; finish at `t` + 3, clean at `t` + 4."""
    return [*running(t, **how), *ending(t, status=status)]


def ending(t: float = T_SUBMIT, *, status: int = 0) -> list[Event]:
    """From RUN to INACTIVE."""
    return [
        event("finish", t + 3, status=status),
        event("release", t + 3, ranks="all", final=True),
        event("free", t + 4),
        event("clean", t + 4),
    ]


def raised(kind: str, severity: int = 0, t: float = T_SUBMIT + 2, note: str = "") -> Event:
    """An exception event."""
    return event("exception", t, type=kind, severity=severity, note=note, userid=USERID)


def canceled(t: float = T_SUBMIT) -> list[Event]:
    """Pending at `t`, canceled a second later."""
    return [*pending(t), raised("cancel", t=t + 1), event("clean", t + 1)]
