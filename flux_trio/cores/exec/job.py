"""One job as the exec service knows it, and its side of the start stream (RFC 32, Start Request).

Every answer to a start request is remembered until the final release has been given to a job
manager. So a repeated start is told the whole story again, whoever asks (readings: Exec override).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from flux_trio.cores.exec.context import Context
from flux_trio.cores.exec.simulation import Simulation
from flux_trio.formats import (
    Event,
    FormatError,
    Jobspec,
    ResourceSet,
    apply_update,
    parse_eventlog,
)
from flux_trio.messages import Errno, FluxError, Request, respond
from flux_trio.protocols import JobEvent, StartType
from flux_trio.shell.protocol import Start

if TYPE_CHECKING:
    from flux_trio.cores.exec.storing import Keeping
    from flux_trio.cores.exec.warning import WarningSignal

SIGKILL: Final = 9
SIGALRM: Final = 14  # at the time limit, as flux-core does
SIGTERM: Final = 15
SIGNUM_MAX: Final = 64

SEVERITY_FATAL: Final = 0
SEVERITY_NOTE: Final = 2

# What exec leaves in the KVS below the job's key (RFC 16)
EXEC_LOG: Final = "guest.exec.eventlog"


class Phase(Enum):
    """How far the exec service is with a job."""

    PREPARING = "reading what the KVS has of it"
    LAUNCHING = "handed to the shell host"
    RUNNING = "started"
    STORING = "ended; its output is being read and stored"
    OVER = "released"


class Job:
    """One job from its start request to its final release."""

    __slots__ = (
        "exec_log",  # events of guest.exec.eventlog, real jobs only
        "expiration",  # seconds since the Unix epoch; 0.0 = no limit
        "id",
        "is_confirmed",  # its final release is in the eventlog
        "is_new",  # allocated since the hello: nobody can have started it before
        "is_stored",  # False when the kvs refused what it left: the shell host must not forget it
        "jobspec",  # as it came; with the environment, once that is read
        "keeping",  # how far its output is kept while STORING, real jobs only
        "killed",  # a fatal exception is known: do not launch, or end what runs
        "lookups",  # answers that are still to come while PREPARING
        "ntasks",  # processes, once known
        "output_limit",  # bytes of output that are kept, real jobs only
        "phase",
        "reattach",  # of the first start request
        "request",  # the start request to answer; None while the job manager is away
        "resources",  # R, once read
        "simulation",  # None for a real job
        "sizes",  # (taskid, stream) → bytes, once the job has ended; None before
        "start",  # what the shell host is asked to launch, real jobs only
        "started_at",  # seconds since the Unix epoch; None before
        "status",  # wait(2) status, once known
        "stepped",  # seconds that the wall clock was set by since the start request
        "stopping",  # a signal was sent, SIGKILL follows
        "told",  # type and data of every answer so far
        "userid",
        "warning",  # what it asked for before its time limit, real jobs only
    )

    def __init__(self, request: Request, jobid: int, userid: int, jobspec: dict[str, Any]) -> None:
        self.id = jobid
        self.userid = userid
        self.jobspec = jobspec
        self.request: Request | None = request
        self.reattach = False
        self.is_new = True
        self.phase = Phase.PREPARING
        self.killed = False
        self.stopping = False
        self.stepped = 0.0
        self.lookups = 0
        self.ntasks = 0
        self.output_limit = 0
        self.is_stored = True
        self.is_confirmed = False
        self.keeping: Keeping | None = None
        self.expiration = 0.0
        self.started_at: float | None = None
        self.status: int | None = None
        self.resources: ResourceSet | None = None
        self.simulation: Simulation | None = None
        self.start: Start | None = None
        self.warning: WarningSignal | None = None
        self.sizes: dict[tuple[int, str], int] | None = None
        self.exec_log: list[Event] = []
        self.told: list[tuple[StartType, dict[str, Any]]] = []

    @property
    def ends_at(self) -> float:
        """When its time limit comes, as the wall shows it now; 0.0 never.

        `expiration` is as R, or the last resource-update event, was written. The clock may have
        been set since: that changes no duration.
        """
        return self.expiration + self.stepped if self.expiration else 0.0

    def check_access(self, request: Request) -> None:
        """Raise FluxError(EPERM) unless `request` is from the owner or the job's user."""
        check_access(request, self.userid)

    # Answers

    def tell(self, context: Context, kind: StartType, data: dict[str, Any]) -> None:
        """Answer the start request, now or when it is repeated."""
        self.told.append((kind, data))
        self._answer(context, kind, data)

    def tell_again(self, context: Context) -> None:
        """Answer a repeated start with everything that was answered before."""
        for kind, data in self.told:
            self._answer(context, kind, data)

    def tell_exception(self, context: Context, note: str, kind: str = "exec") -> None:
        """A fatal exception of this job (RFC 21)."""
        self.killed = True
        data = {"severity": SEVERITY_FATAL, "type": kind, "note": note}
        self.tell(context, StartType.EXCEPTION, data)

    def tell_note(self, context: Context, note: str) -> None:
        """An exception of this job that ends nothing, for its user to read (RFC 21)."""
        data = {"severity": SEVERITY_NOTE, "type": "exec", "note": note}
        self.tell(context, StartType.EXCEPTION, data)

    def tell_start(self, context: Context) -> None:
        self.phase = Phase.RUNNING
        self.tell(context, StartType.START, {})

    def tell_release(self, context: Context) -> None:
        """Nothing of the job uses its resources: the last answer."""
        self.phase = Phase.OVER
        context.over.append(self.id)
        ranks = "" if self.resources is None else str(self.resources.ranks)
        self.tell(context, StartType.RELEASE, {"ranks": ranks, "final": True})

    def tell_finish(self, context: Context, status: int) -> None:
        """The job has ended with the wait(2) status `status`; all its resources are released."""
        self.status = status
        self.tell(context, StartType.FINISH, {"status": status})
        self.tell_release(context)

    def fail(self, context: Context, note: str) -> None:
        """It cannot be started: a fatal exception, and the release that must follow."""
        self.tell_exception(context, note)
        self.tell_release(context)

    def _answer(self, context: Context, kind: StartType, data: dict[str, Any]) -> None:
        if self.request is not None:
            payload = {"id": self.id, "type": kind.value, "data": data}
            answer = respond(self.request, payload)  # errnum 0, whatever it says (32.impl.5)
            if answer is not None:
                context.emit(answer)

    # What the KVS has

    def read_environment(self, text: str) -> None:
        """Take the environment of the tasks from the stored jobspec. FormatError.

        In all else the start request's jobspec counts; the environment is left out of messages
        (RFC 27, Alloc).
        """
        environment = Jobspec.parse(text.encode()).environment if text else {}
        if environment:
            path = "attributes.system.environment"
            self.jobspec = apply_update(self.jobspec, path, environment)

    def read_eventlog(self, text: str) -> None:
        """Take from the job's eventlog what an exec service before this one knew. FormatError."""
        for event in parse_eventlog(text):
            context = event.context or {}
            if event.name == JobEvent.START and self.started_at is None:
                self.started_at = event.timestamp
            elif event.name == JobEvent.RESOURCE_UPDATE:
                self.expiration = float(context.get("expiration", self.expiration))
            elif event.name == JobEvent.EXCEPTION:
                self.killed |= context.get("severity") == SEVERITY_FATAL

    def note(self, now: float, name: str, context: dict[str, Any] | None = None) -> None:
        """Add an event to guest.exec.eventlog."""
        self.exec_log.append(Event(now, name, context))


def check_access(request: Request, userid: int) -> None:
    """Raise FluxError(EPERM) unless `request` is from the owner or from `userid`."""
    if not request.is_owner and request.userid != userid:
        raise FluxError(Errno.EPERM, f"{request.topic}: the job belongs to another user")


def is_released(eventlog: str) -> bool:
    """Whether an eventlog has the job's final release. FormatError."""
    return any(
        event.name == JobEvent.RELEASE and bool((event.context or {}).get("final"))
        for event in parse_eventlog(eventlog)
    )


def completed_status(exec_log: str) -> int | None:
    """The status in the `complete` event of a guest.exec.eventlog, or None. FormatError."""
    for event in parse_eventlog(exec_log):
        if event.name == "complete":
            status = (event.context or {}).get("status")
            if not isinstance(status, int):
                raise FormatError("an integer", status, "complete.context.status")
            return status
    return None
