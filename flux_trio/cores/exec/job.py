"""One job of the exec service, from its start request to its final release. Data."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Final

import msgspec

from flux_trio.cores.exec.exits import ExitRules, WarningSignal
from flux_trio.cores.exec.guest_contents import Contents
from flux_trio.cores.exec.input_options import InputRules
from flux_trio.cores.exec.simulation import Simulation
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import fold_eventlog
from flux_trio.editions import rfc21, rfc24
from flux_trio.editions.rfc32 import Report
from flux_trio.formats import (
    Event,
    FormatError,
    ResourceSet,
    apply_update,
    format_fluid,
    parse_eventlog,
    parse_jobspec,
)
from flux_trio.formats.meanings import JobId, JsonObject, Matchtag, Meaning, Time
from flux_trio.messages import Errno, FluxError, Request, check_job_access
from flux_trio.protocols import Job as StoredJob
from flux_trio.protocols import JobEvent
from flux_trio.shell.protocol import FirstExit, Start

SEVERITY_NOTE: Final = 2


class Phase(Enum):
    """How far the exec service is with a job."""

    PREPARING = "reading what the KVS has of it"
    LAUNCHING = "handed to the shell host"
    RUNNING = "started"
    STORING = "ended; its output is being read and stored"
    OVER = "released"


class Copying(Enum):
    """How far the output of a job is copied to where it is stored."""

    NOT_YET = "nobody reads it"
    WAITING = "as many others are copied as may be at once"
    UNDER_WAY = "it is copied as it grows"
    DONE = "all of it is there"


class GuestNamespace(msgspec.Struct, eq=False):
    """What is under way for a job's guest namespace; its state is in `NamespaceStates`.

    The `number` tells it from one that the job had before its job manager left.
    """

    number: int
    is_named: bool  # it is more than its content
    is_made: bool = False  # it has its first events
    is_writing: bool = False  # a WRITE is under way
    is_read: bool = False  # somebody reads its output
    is_current: bool = False  # what was there of its output a moment ago has been read
    copying: Copying = Copying.NOT_YET
    is_starting: bool = False  # the tasks run, and that is not written yet
    has_started: bool = False  # that is written, or waits for the end


class Job(msgspec.Struct, eq=False):
    """One job from its start request to its final release."""

    id: JobId
    userid: int
    jobspec: JsonObject  # of the start request; with the environment, once that is read
    reattach: bool = False  # of the first start request
    is_new: bool = True  # allocated since the hello, so no other service has started it
    phase: Phase = Phase.PREPARING
    lookups: set[Matchtag] = set()  # matchtags of open lookups while PREPARING
    is_refused: bool = False  # the KVS has refused R, and is asked again
    is_wrong: bool = False  # its start request cannot be read; R is, to name what is released
    killed: bool = False  # a fatal exception is known: launch nothing, end all that runs
    is_stuck: bool = False  # SIGKILL was sent long ago
    stopping: bool = False  # a signal was sent, SIGKILL follows
    is_expired: bool = False  # that signal was for its time limit: a cancel may follow
    stepped: float = 0.0  # seconds that the wall clock was set by since the start request
    expiration: Time = 0.0  # seconds since the Unix epoch; 0.0 = no limit
    is_told: bool = False  # the journal has told it since the eventlog was asked for
    started_at: Time | None = None  # seconds since the Unix epoch
    status: int | None = None  # wait(2) status, once known
    given: ResourceSet | None = None  # R of the start request, in an edition that has it there
    resources: ResourceSet | None = None  # R, once read
    simulation: Simulation | None = None  # None for a real job
    reports: list[Report] = []  # every answer to its start so far
    nheld: int = 0  # the last of them, which are not told yet
    is_held: bool = False  # more of them are not told either
    released: int = 0  # ranks that are released before the final release, as bits
    is_confirmed: bool = False  # its final release is in the eventlog
    # Of real jobs only
    ntasks: int = 0  # processes, once known
    start: Annotated[Start | None, Meaning.DERIVED] = None  # what the shell host is asked to launch
    warning: WarningSignal | None = None  # the signal that the job wants before its time limit
    exit_rules: ExitRules = ExitRules()  # what follows when its first task has exited
    first_exit: FirstExit | None = None  # that task, while others run
    exit_status: int | None = None  # its status, as these rules or its exception say it
    output_limit: int = 0  # bytes of output that are kept
    remarks: list[rfc24.Message] = []  # for the log of its output, before it starts
    is_unbuffered: bool = False  # readers of output are not to wait for whole lines
    output_paths: dict[str, str] = {}  # of the streams that go to files
    input_rules: InputRules = InputRules()
    input_open: int = 0  # tasks to which Flux's own programs may write, as bits
    input_bytes: int = 0  # that they have written
    input_log: list[Event] = []  # of that, what is not committed yet
    input_pending: int = 0  # bytes of data in it
    sizes: dict[tuple[int, str], int] | None = None  # (taskid, stream) -> bytes, at its end
    nodes: list[int] = []  # of each task: the index of its rank in R
    contents: Contents = msgspec.field(default_factory=Contents)  # of its exec eventlog
    guest: GuestNamespace | None = None  # if it has one
    is_stored: bool = True  # False if the kvs refused something: the shell host keeps the job

    @property
    def ends_at(self) -> float:
        """Return the time of the job's time limit, by the wall clock as it is now; 0.0 for none.

        `expiration` comes from R, or from the last resource-update event. If the clock was set
        since then, the durations stay the same.
        """
        return self.expiration + self.stepped if self.expiration else 0.0

    def read_environment(self, text: str) -> None:
        """Take the environment of the tasks from the stored jobspec. Raises FormatError.

        Messages leave the environment out (RFC 27, Alloc). All else comes from the jobspec of the
        start request.
        """
        environment = parse_jobspec(text.encode()).environment if text else {}
        if environment:
            path = "attributes.system.environment"
            self.jobspec = apply_update(self.jobspec, path, environment)

    def read_eventlog(self, text: str) -> None:
        """Take start, expiration and exceptions from the job's eventlog; "" for an absent one.

        Raises FluxError.
        """
        if not text:
            return
        stored, events = fold_eventlog(StoredJob, self.id, text)
        if self.started_at is None:
            starts = (event.timestamp for event in events if event.name == JobEvent.START)
            self.started_at = next(starts, None)
        if stored.expiration is not None and not self.is_told:
            self.expiration = stored.expiration
        if stored.exception is not None:
            self.killed = True
            if (wait_status := rfc21.wait_status_in(stored.exception)) is not None:
                self.exit_status = rfc21.shell_status(wait_status)
        self.released |= stored.released_ranks


class Jobs(Part):
    """The jobs that this service was asked to start and has not forgotten.

    They run, or their end must still be reported.
    """

    by_id: dict[JobId, Job]

    def __init__(self) -> None:
        self.by_id = {}

    def get(self, jobid: int) -> Job | None:
        """Return the job; None if this service does not know it."""
        return self.by_id.get(jobid)

    def asked_about(self, request: Request, jobid: int) -> Job:
        """Return the job that a user's request is about. Raises FluxError: ENOENT, EPERM."""
        job = self.by_id.get(jobid)
        if job is None:
            name = format_fluid(jobid, "f58")
            raise FluxError(Errno.ENOENT, f"job {name} is not running")
        check_job_access(request, job.userid)
        return job

    @property
    def all_running(self) -> list[Job]:
        """The jobs that are RUNNING."""
        return [job for job in self.by_id.values() if job.phase is Phase.RUNNING]

    def running(self, jobid: int) -> Job | None:
        """Return the job if it is RUNNING, else None."""
        job = self.by_id.get(jobid)
        return job if job is not None and job.phase is Phase.RUNNING else None

    def real(self, *phases: Phase) -> Iterator[Job]:
        """Yield the jobs with processes that are in one of `phases`."""
        for job in list(self.by_id.values()):
            if job.simulation is None and job.phase in phases:
                yield job


def completed_status(exec_log: str) -> int | None:
    """Return the status in the `complete` event of a guest.exec.eventlog, None without one.

    Raises FormatError.
    """
    for event in parse_eventlog(exec_log):
        if event.name == "complete":
            status = rfc21.status_in(event.context or {})
            if not isinstance(status, int):
                raise FormatError("an integer", status, "complete.context.status")
            return status
    return None
