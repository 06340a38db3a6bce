"""RFC 21: the states of one job and the events of its eventlog.

`JOB` is the table. `Job` is one job, built from its eventlog. It begins with the event submit, so
the table has no row for submit. `apply` adds each later event and has no other effect, so a replay
only calls `apply`. The job manager alone decides the next step and initiates transitions.

The functions that change a `Job` read the contexts by RFC 21's keys; elsewhere only `editions` has
such keys. A start reads back thousands of jobs, and a struct for each context would take longer
than the change itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any, Final, TypeVar

from flux_trio.editions import rfc21
from flux_trio.editions.rfc21 import EVENTLOG_VERSION, PRIORITY_MIN, JobEvent
from flux_trio.formats import Event, FormatError, Words
from flux_trio.formats.meanings import JobId, Stamp, Time
from flux_trio.protocols.alloc import merge_annotations
from flux_trio.protocols.rare import Rare
from flux_trio.protocols.table import InvalidTransition, Member, Table


class JobState(IntEnum):
    """State Descriptions; flux-core's numbers, so that masks have the same meaning."""

    NEW = 1
    DEPEND = 2
    PRIORITY = 4
    SCHED = 8
    RUN = 16
    CLEANUP = 32
    INACTIVE = 64


class JobResult(IntEnum):
    """How a job ended; flux-core's numbers."""

    COMPLETED = 1
    FAILED = 2
    CANCELED = 4
    TIMEOUT = 8


_INACTIVE: Final = JobState.INACTIVE  # looked up once: every job passes here
_COMPLETED: Final = JobResult.COMPLETED
_CANCELED: Final = JobResult.CANCELED

_TIMEOUTS: Final = ("timeout", "timelimit")  # flux-core's name and RFC 21's name

PENDING: Final = JobState.DEPEND | JobState.PRIORITY | JobState.SCHED
RUNNING: Final = JobState.RUN | JobState.CLEANUP
ACTIVE: Final = PENDING | RUNNING


class JobFlag(IntFlag):
    """The flags of a job; on the wire each has the number of its edition (`Edition.first_flag`)."""

    DEBUG = 1
    WAITABLE = 2
    NOVALIDATE = 4


class Step(Member):
    """The table's events: RFC 21's, with exceptions split by severity, and one for all others."""

    SUBMIT = JobEvent.SUBMIT.value
    JOBSPEC_UPDATE = JobEvent.JOBSPEC_UPDATE.value
    RESOURCE_UPDATE = JobEvent.RESOURCE_UPDATE.value
    VALIDATE = JobEvent.VALIDATE.value
    INVALIDATE = JobEvent.INVALIDATE.value
    SET_FLAGS = JobEvent.SET_FLAGS.value
    DEPENDENCY_ADD = JobEvent.DEPENDENCY_ADD.value
    DEPENDENCY_REMOVE = JobEvent.DEPENDENCY_REMOVE.value
    DEPEND = JobEvent.DEPEND.value
    PRIORITY = JobEvent.PRIORITY.value
    FLUX_RESTART = JobEvent.FLUX_RESTART.value
    URGENCY = JobEvent.URGENCY.value
    ALLOC = JobEvent.ALLOC.value
    PROLOG_START = JobEvent.PROLOG_START.value
    PROLOG_FINISH = JobEvent.PROLOG_FINISH.value
    EPILOG_START = JobEvent.EPILOG_START.value
    EPILOG_FINISH = JobEvent.EPILOG_FINISH.value
    FREE = JobEvent.FREE.value
    START = JobEvent.START.value
    RELEASE = JobEvent.RELEASE.value
    FINISH = JobEvent.FINISH.value
    CLEAN = JobEvent.CLEAN.value
    EXCEPTION_FATAL = "exception, severity 0"
    EXCEPTION_MINOR = "exception, severity 1-7"
    MEMO = JobEvent.MEMO.value
    OTHER = "any other event"


_N, _E = JobState, Step


def _row(state: JobState, moves: dict[Step, JobState], *stays: Step) -> dict[Step, JobState]:
    """Build the row of an active state: `moves`, `stays`, and the events allowed in any state."""
    anywhere = (_E.EXCEPTION_MINOR, _E.MEMO, _E.OTHER, _E.FLUX_RESTART, _E.SET_FLAGS)
    return dict.fromkeys(anywhere + stays, state) | {_E.EXCEPTION_FATAL: _N.CLEANUP} | moves


JOB: Table[JobState, Step] = Table(
    "job",
    JobState.NEW,
    {
        _N.NEW: _row(
            _N.NEW,
            {_E.VALIDATE: _N.DEPEND, _E.INVALIDATE: _N.INACTIVE},
            _E.JOBSPEC_UPDATE,
            _E.DEPENDENCY_ADD,
            _E.DEPENDENCY_REMOVE,
            _E.URGENCY,
        ),
        _N.DEPEND: _row(
            _N.DEPEND,
            {_E.DEPEND: _N.PRIORITY},
            _E.JOBSPEC_UPDATE,
            _E.DEPENDENCY_ADD,
            _E.DEPENDENCY_REMOVE,
            _E.URGENCY,
        ),
        _N.PRIORITY: _row(_N.PRIORITY, {_E.PRIORITY: _N.SCHED}, _E.JOBSPEC_UPDATE, _E.URGENCY),
        _N.SCHED: _row(
            _N.SCHED,
            {
                _E.ALLOC: _N.RUN,
                # ask the plugins again: the basis of their decision has changed
                _E.URGENCY: _N.PRIORITY,
                _E.JOBSPEC_UPDATE: _N.PRIORITY,
                _E.FLUX_RESTART: _N.PRIORITY,
            },
            _E.PRIORITY,  # a new one, told to the scheduler by sched.prioritize
        ),
        _N.RUN: _row(
            _N.RUN,
            {_E.FINISH: _N.CLEANUP},
            _E.PROLOG_START,
            _E.PROLOG_FINISH,
            _E.START,
            _E.RELEASE,
            _E.RESOURCE_UPDATE,
            _E.JOBSPEC_UPDATE,
            _E.EPILOG_START,  # posted before the exception that ends the job
            _E.EPILOG_FINISH,
        ),
        _N.CLEANUP: _row(
            _N.CLEANUP,
            {_E.CLEAN: _N.INACTIVE},
            _E.PROLOG_FINISH,  # of a prolog that went on when the exception came
            _E.EPILOG_START,
            _E.EPILOG_FINISH,
            _E.START,  # crossed the exception
            _E.RELEASE,
            _E.FINISH,  # the exception came first: the job is in CLEANUP already
            _E.FREE,
            _E.RESOURCE_UPDATE,  # a scheduler has agreed before the job ended
        ),
        _N.INACTIVE: {},  # captive state
    },
)

# The events of every job come first: Python caches small integers, so jobs share these masks.
_USUAL = (
    JobEvent.SUBMIT,
    JobEvent.VALIDATE,
    JobEvent.DEPEND,
    JobEvent.PRIORITY,
    JobEvent.ALLOC,
    JobEvent.START,
    JobEvent.FINISH,
    JobEvent.RELEASE,
)
_BITS = {event.value: 1 << place for place, event in enumerate(dict.fromkeys((*_USUAL, *JobEvent)))}
_SUBMITTED = _BITS[JobEvent.SUBMIT]
_STARTED = _BITS[JobEvent.START]
_ALLOCATED = _BITS[JobEvent.ALLOC]
_HELD = _ALLOCATED | _BITS[JobEvent.FREE]

_STEPS: dict[str, Step] = {
    event.value: Step(event.value) for event in JobEvent if event != "exception"
}


_EXCEPTION: Final = JobEvent.EXCEPTION
_FATAL: Final = Step.EXCEPTION_FATAL


def step_of(event: Event) -> Step:
    """Return the table's event for an eventlog entry."""
    if (step := _STEPS.get(event.name)) is not None:
        return step
    if event.name != _EXCEPTION:
        return Step.OTHER
    return _FATAL if rfc21.is_fatal(event.name, event.context) else Step.EXCEPTION_MINOR


class JobFacts:
    """Facts that are computed from a job's fields; derived classes have the fields."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def posted(self) -> int:
            """The names of the events applied, as a mask of _BITS."""

        @property
        def rare(self) -> dict[str, Any] | None:
            """The values of the fields that few jobs have, by name; None without any."""

    dependencies = Rare[frozenset[str] | None](None)
    """Descriptions that are open now."""
    dependencies_met = Rare[frozenset[str] | None](None)
    """Descriptions that were open and are removed."""
    epilogs = Rare[frozenset[str] | None](None)
    """Descriptions that are open now."""
    exception = Rare[dict[str, Any] | None](None)
    """Context of the first severity 0 exception: the root cause."""
    expiration = Rare[Time | None](None)
    """From the last resource-update, in seconds since the Unix epoch."""
    posted_others = Rare[frozenset[str] | None](None)
    """Names of logged events that RFC 21 does not define."""
    prologs = Rare[frozenset[str] | None](None)
    """Descriptions that are open now."""

    @property
    def has_resources(self) -> bool:
        """Return whether alloc was applied and free was not."""
        return self.posted & _HELD == _ALLOCATED

    @property
    def started(self) -> bool:
        return bool(self.posted & _STARTED)

    def was_posted(self, name: str) -> bool:
        """Return whether an event `name` was applied."""
        return bool(self.posted & _BITS.get(name, 0)) or name in (self.posted_others or ())


class Job(JobFacts):
    """One job, built from its eventlog. Sets and dictionaries are None until first used.

    They are replaced, never modified in place: others hold them too.
    """

    __slots__ = (
        "annotations",  # RFC 27; volatile until alloc
        "flags",  # a mask of JobFlag
        "id",
        "jobspec_updates",  # key path → value, of all jobspec-update events
        "nevents",  # events applied so far
        "posted",  # their names, as a mask of _BITS
        "priority",
        "rare",
        "released",  # the final release event
        "state",
        "status",  # wait status of the finish event, None before it
        "t_submit",
        "urgency",
        "userid",
    )

    id: JobId
    posted: int
    rare: dict[str, Any] | None
    t_submit: Stamp

    bypassed = Rare(False)
    """A plugin gave the job its resources; the scheduler does not know of them."""
    exception_is_late = Rare(False)
    """That exception came after the finish event and does not change the result."""
    immutable = Rare(False)
    """The owner has changed the jobspec, so the user may not change it."""
    memo = Rare[dict[str, Any] | None](None)
    released_ranks = Rare(0)
    """The ranks of release events that were not final, as bits."""

    def __init__(self, jobid: int, submit: Event, first_flag: int = 1) -> None:
        """Begin a job; InvalidTransition if the event is not submit (21.events.3).

        `first_flag` is the number that the edition has for debug.
        """
        if submit.name != JobEvent.SUBMIT:
            expected = f"{JobEvent.SUBMIT} first"
            raise InvalidTransition(
                JOB.name, JOB.initial, step_of(submit), expected, f"job {jobid}"
            )
        context = submit.context or {}
        self.rare = None
        self.id = jobid
        self.state = JOB.initial
        self.userid = context["userid"]
        self.urgency = context["urgency"]
        self.priority = PRIORITY_MIN
        self.flags = context["flags"] // first_flag
        self.t_submit = submit.timestamp
        self.nevents = 1
        self.posted = _SUBMITTED
        self.released = False
        self.status: int | None = None
        self.annotations: dict[str, Any] | None = None
        self.jobspec_updates: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.state.name}>"

    @property
    def is_active(self) -> bool:
        return self.state != JobState.INACTIVE

    @property
    def success(self) -> bool:
        """Return whether the job finished with status 0 before any severity 0 exception."""
        return self.status == 0 and (self.exception is None or self.exception_is_late)

    @property
    def result(self) -> JobResult | None:
        """Return how the job ended; None while it is active."""
        if self.state is not _INACTIVE:
            return None
        if self.success:
            return _COMPLETED
        exception = self.exception
        kind = exception["type"] if exception is not None else ""
        if kind == "cancel":
            return _CANCELED
        return JobResult.TIMEOUT if kind in _TIMEOUTS else JobResult.FAILED

    def apply(self, event: Event) -> None:
        """Apply one event; InvalidTransition if RFC 21 does not allow it in this state."""
        step, change, bit = _MEANINGS.get(event.name, _OTHER)
        try:
            after = JOB.step(self.state, step or step_of(event))
        except InvalidTransition as error:
            raise error.with_story(f"job {self.id}") from None
        if change is not None:
            change(self, event)
        self.state = after
        self.nevents += 1
        if bit:
            self.posted |= bit
        else:
            self.posted_others = (self.posted_others or frozenset()) | {event.name}


JobT = TypeVar("JobT", bound=Job)


def replay(jobid: int, events: Sequence[Event]) -> Job:
    """Build a job from its eventlog. Raises what `replay_as` raises."""
    return replay_as(Job, jobid, events)


def replay_as(kind: Callable[[int, Event], JobT], jobid: int, events: Sequence[Event]) -> JobT:
    """Build a job from its eventlog; `kind`, such as a class, makes it of the event submit.

    Raises InvalidTransition if the log violates RFC 21, FormatError if it has no event.
    """
    if not events:
        raise FormatError("the event submit", Words("an empty eventlog"))
    job = kind(jobid, events[0])
    try:
        for event in events[1:]:
            job.apply(event)
    except InvalidTransition as error:
        past = [event.name for event in events[: job.nevents]]
        raise error.with_story(story=past) from None
    return job


def submit_event(t_submit: float, userid: int, urgency: int, flags: int) -> Event:
    """Return the first event of a job; `t_submit` is in seconds since the Unix epoch."""
    context = rfc21.Submit(userid, urgency, flags, EVENTLOG_VERSION)
    return Event(t_submit, JobEvent.SUBMIT, rfc21.write(context))


def _jobspec_update(job: Job, event: Event) -> None:
    job.jobspec_updates = (job.jobspec_updates or {}) | (event.context or {})


def _resource_update(job: Job, event: Event) -> None:
    job.expiration = float((event.context or {})["expiration"])


def _set_flags(job: Job, event: Event) -> None:
    for name in (event.context or {})["flags"]:
        job.flags |= JobFlag.__members__.get(name.upper(), JobFlag(0))
        job.immutable |= name == "immutable"


def _dependency_add(job: Job, event: Event) -> None:
    job.dependencies = (job.dependencies or frozenset()) | {_description(event)}


def _dependency_remove(job: Job, event: Event) -> None:
    gone = {_description(event)}
    job.dependencies_met = (job.dependencies_met or frozenset()) | gone
    job.dependencies = (job.dependencies or frozenset()) - gone or None


def _priority(job: Job, event: Event) -> None:
    job.priority = (event.context or {})["priority"]


def _urgency(job: Job, event: Event) -> None:
    job.urgency = (event.context or {})["urgency"]


def _alloc(job: Job, event: Event) -> None:
    context = event.context or {}
    if context.get("bypass"):
        job.bypassed = True
    if "annotations" in context:
        job.annotations = context["annotations"]


def _prolog_start(job: Job, event: Event) -> None:
    job.prologs = (job.prologs or frozenset()) | {_description(event)}


def _prolog_finish(job: Job, event: Event) -> None:
    job.prologs = (job.prologs or frozenset()) - {_description(event)} or None


def _epilog_start(job: Job, event: Event) -> None:
    job.epilogs = (job.epilogs or frozenset()) | {_description(event)}


def _epilog_finish(job: Job, event: Event) -> None:
    job.epilogs = (job.epilogs or frozenset()) - {_description(event)} or None


def _release(job: Job, event: Event) -> None:
    context = event.context or {}
    job.released = bool(context["final"])
    if not job.released:
        job.released_ranks |= rfc21.ranks_in(context)


def _finish(job: Job, event: Event) -> None:
    job.status = (event.context or {})["status"]


def _exception(job: Job, event: Event) -> None:
    if rfc21.is_fatal(event.name, event.context) and job.exception is None:
        job.exception = event.context
        if job.status is not None:
            job.exception_is_late = True


def _memo(job: Job, event: Event) -> None:
    """A key replaces the same key, null removes it. What it writes is in the annotations, too."""
    context = event.context or {}
    merged = (job.memo or {}) | context
    job.memo = {key: value for key, value in merged.items() if value is not None}
    update = {"user": context}
    job.annotations = merge_annotations(job.annotations or {}, update, keeps_empty=False) or None


def _description(event: Event) -> str:
    return str((event.context or {})["description"])


_CHANGES = {
    JobEvent.JOBSPEC_UPDATE.value: _jobspec_update,
    JobEvent.RESOURCE_UPDATE.value: _resource_update,
    JobEvent.SET_FLAGS.value: _set_flags,
    JobEvent.DEPENDENCY_ADD.value: _dependency_add,
    JobEvent.DEPENDENCY_REMOVE.value: _dependency_remove,
    JobEvent.PRIORITY.value: _priority,
    JobEvent.URGENCY.value: _urgency,
    JobEvent.ALLOC.value: _alloc,
    JobEvent.PROLOG_START.value: _prolog_start,
    JobEvent.PROLOG_FINISH.value: _prolog_finish,
    JobEvent.EPILOG_START.value: _epilog_start,
    JobEvent.EPILOG_FINISH.value: _epilog_finish,
    JobEvent.RELEASE.value: _release,
    JobEvent.FINISH.value: _finish,
    JobEvent.EXCEPTION.value: _exception,
    JobEvent.MEMO.value: _memo,
}

# By name: the table's event (None for an exception: its severity decides), the change, the bit.
_MEANINGS: Final[dict[str, tuple[Step | None, Callable[[Job, Event], None] | None, int]]] = {
    name: (_STEPS.get(name), _CHANGES.get(name), bit) for name, bit in _BITS.items()
}
_OTHER: Final = (Step.OTHER, None, 0)
