"""RFC 21, Event Descriptions: the names of a job's events, and their contexts.

`write` makes a context from a type. `check_context` checks events of plugins and of eventlogs that
are replayed; the job manager's own events need no check.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from flux_trio.formats import Event, FormatError, Idset, converted


class JobEvent(StrEnum):
    """Event Descriptions: the names of all events that RFC 21 defines."""

    SUBMIT = "submit"
    JOBSPEC_UPDATE = "jobspec-update"
    RESOURCE_UPDATE = "resource-update"
    VALIDATE = "validate"
    INVALIDATE = "invalidate"
    SET_FLAGS = "set-flags"
    DEPENDENCY_ADD = "dependency-add"
    DEPENDENCY_REMOVE = "dependency-remove"
    DEPEND = "depend"
    PRIORITY = "priority"
    FLUX_RESTART = "flux-restart"
    URGENCY = "urgency"
    ALLOC = "alloc"
    PROLOG_START = "prolog-start"
    PROLOG_FINISH = "prolog-finish"
    EPILOG_START = "epilog-start"
    EPILOG_FINISH = "epilog-finish"
    FREE = "free"
    START = "start"
    RELEASE = "release"
    FINISH = "finish"
    CLEAN = "clean"
    EXCEPTION = "exception"
    MEMO = "memo"


URGENCY_MIN: Final = 0
URGENCY_HOLD: Final = 0
URGENCY_DEFAULT: Final = 16
URGENCY_EXPEDITE: Final = 31
URGENCY_MAX: Final = 31
PRIORITY_MIN: Final = 0
PRIORITY_MAX: Final = 4294967295
EXEC: Final = "exec"
"""The type of an exception that the end of a task has caused."""

SEVERITY_FATAL: Final = 0
SEVERITY_MAX: Final = 7
EVENTLOG_VERSION: Final = 1

Urgency = Annotated[int, msgspec.Meta(ge=URGENCY_MIN, le=URGENCY_MAX)]
Priority = Annotated[int, msgspec.Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)]
Severity = Annotated[int, msgspec.Meta(ge=SEVERITY_FATAL, le=SEVERITY_MAX)]
WaitStatus = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]  # of wait(2)


class Submit(msgspec.Struct):
    userid: int
    urgency: Urgency
    flags: int
    version: int = 1


class ResourceUpdate(msgspec.Struct):
    """Resource-update Event; flux-core writes a float."""

    expiration: int | float


class SetFlags(msgspec.Struct):
    flags: list[str]


class Described(msgspec.Struct):
    """Dependency-add, dependency-remove, prolog-start, epilog-start."""

    description: str


class Completed(msgspec.Struct):
    """Prolog-finish, epilog-finish."""

    description: str
    status: int


class PriorityContext(msgspec.Struct):
    priority: Priority


class UrgencyContext(msgspec.Struct):
    userid: int
    urgency: Urgency


class Alloc(msgspec.Struct):
    annotations: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    bypass: bool | msgspec.UnsetType = msgspec.UNSET  # flux-core's: no scheduler granted it


ALL_RANKS: Final = "all"


class Release(msgspec.Struct):
    """Release Event: ranks is an idset or "all"."""

    ranks: str
    final: bool


RELEASE_ALL: Final = Release(ALL_RANKS, final=True)


class Finish(msgspec.Struct):
    """Finish Event: a wait(2) status."""

    status: int


class RaisedException(msgspec.Struct, frozen=True):
    """What an exception event says of the exception."""

    type: str
    severity: Severity
    note: str = ""


class Exceptional(RaisedException, frozen=True):
    """The context of an exception event; `userid` is who raised it.

    `wait_status` is the wait(2) status of the task whose end caused it.
    """

    userid: int | msgspec.UnsetType = msgspec.UNSET
    wait_status: WaitStatus | msgspec.UnsetType = msgspec.UNSET


class Empty(msgspec.Struct, forbid_unknown_fields=True):
    """Free, start and clean events: RFC 21 requires an empty context."""


_CONTEXTS: dict[str, type[msgspec.Struct]] = {
    JobEvent.SUBMIT: Submit,
    JobEvent.RESOURCE_UPDATE: ResourceUpdate,
    JobEvent.SET_FLAGS: SetFlags,
    JobEvent.DEPENDENCY_ADD: Described,
    JobEvent.DEPENDENCY_REMOVE: Described,
    JobEvent.PRIORITY: PriorityContext,
    JobEvent.URGENCY: UrgencyContext,
    JobEvent.ALLOC: Alloc,
    JobEvent.PROLOG_START: Described,
    JobEvent.PROLOG_FINISH: Completed,
    JobEvent.EPILOG_START: Described,
    JobEvent.EPILOG_FINISH: Completed,
    JobEvent.FREE: Empty,
    JobEvent.START: Empty,
    JobEvent.RELEASE: Release,
    JobEvent.FINISH: Finish,
    JobEvent.CLEAN: Empty,
    JobEvent.EXCEPTION: Exceptional,
}


def write(context: msgspec.Struct) -> dict[str, Any]:
    """Return the context of an event."""
    held: dict[str, Any] = msgspec.to_builtins(context)
    return held


def is_fatal(name: str, context: Mapping[str, Any] | None) -> bool:
    """Return whether an event is an exception of severity 0."""
    return (
        name == JobEvent.EXCEPTION
        and context is not None
        and context.get("severity") == SEVERITY_FATAL
    )


def read_exception(context: Mapping[str, Any]) -> RaisedException:
    """Return what the context of an exception event says. Raises KeyError."""
    return RaisedException(context["type"], context["severity"], context.get("note", ""))


def wait_status_in(context: Mapping[str, Any]) -> int | None:
    """Return the wait_status in the context of an exception event, None if it has none."""
    found = context.get("wait_status")
    return found if isinstance(found, int) else None


def shell_status(wait_status: int) -> int:
    """Return the wait(2) status of a shell that says by its exit how a task has ended.

    RFC 32 has 128 + signal, or the exit code; as flux-core has it, that is an exit code here.
    """
    signum = wait_status & 0x7F
    return (128 + signum if signum else wait_status >> 8 & 0xFF) << 8


def is_final_release(name: str, context: Mapping[str, Any] | None) -> bool:
    """Return whether an event is the job's last release."""
    return name == JobEvent.RELEASE and context is not None and bool(context.get("final"))


def ranks_in(context: Mapping[str, Any]) -> int:
    """Return the ranks in the context of a release event, as bits; 0 if they are no idset."""
    try:
        return Idset.parse(context.get("ranks")).bits
    except FormatError:
        return 0


def expiration_in(context: Mapping[str, Any], otherwise: float) -> float:
    """Return the expiration in the context of a resource-update event."""
    return float(context.get("expiration", otherwise))


def userid_in(context: Mapping[str, Any], otherwise: int) -> int:
    """Return the userid in the context of a submit event."""
    userid: int = context.get("userid", otherwise)
    return userid


def status_in(context: Mapping[str, Any]) -> object:
    """Return the status in the context of a finish event, None if it has none."""
    return context.get("status")


def description_in(context: Mapping[str, Any]) -> str:
    """Return the description in the context of an event of a dependency, a prolog or an epilog."""
    description: str = context["description"]
    return description


def check_context(event: Event, where: str = "") -> None:
    """Raise FormatError that names the key if the context is not as RFC 21 describes it."""
    context = event.context or {}
    if event.name == JobEvent.JOBSPEC_UPDATE and not context:
        raise FormatError("at least one key path and value", context, where or event.name)
    if (shape := _CONTEXTS.get(event.name)) is not None:
        converted(context, shape, where or event.name)
