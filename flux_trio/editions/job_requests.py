"""What users and administrators ask the job manager about jobs; flux-core's payloads.

No RFC describes them; `type`, `severity`, `note`, `urgency` and `memo` are RFC 21's.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from flux_trio.editions.codec import codec
from flux_trio.editions.common import Histogram
from flux_trio.editions.housekeeping import Housekeeping
from flux_trio.editions.rfc21 import WaitStatus
from flux_trio.formats.meanings import JobId
from flux_trio.messages.types import USERID_UNKNOWN

UNLIMITED: Final = -1
SIGNUM_MAX: Final = 64  # the last signal of Linux, a real-time one


class Raise(msgspec.Struct, frozen=True):
    """The job-manager.raise request; `wait_status` counts where exceptions have it."""

    id: JobId  # the job
    type: str  # of the exception: a word
    severity: int  # 0 (ends the job) to 7
    note: str = ""  # for people
    wait_status: WaitStatus | None = None  # with which the job is said to have ended


class RaiseAll(msgspec.Struct, frozen=True):
    """The job-manager.raiseall request; `states` is a mask of JobState."""

    severity: int  # 0 (ends the jobs) to 7
    type: str  # of the exceptions: a word
    states: int  # a mask: jobs in these states
    userid: int = USERID_UNKNOWN  # whose jobs; 4294967295: of anybody
    dry_run: bool = False  # jobs are only counted
    note: str = ""  # for people


class Counted(msgspec.Struct, frozen=True):
    """The job-manager.raiseall and job-manager.killall responses: numbers of jobs and errors."""

    count: int
    errors: int


class Urgency(msgspec.Struct, frozen=True):
    """The job-manager.urgency request."""

    id: JobId  # the job
    urgency: int  # 0 (held) to 31, -1: default, -2: held


class OldUrgency(msgspec.Struct, frozen=True):
    """The job-manager.urgency response."""

    old_urgency: int


class Kill(msgspec.Struct, frozen=True):
    """The job-manager.kill request, and the <service>.kill request that follows."""

    id: JobId  # the job
    signum: int  # the signal


class KillAll(msgspec.Struct, frozen=True):
    """The job-manager.killall request."""

    userid: int  # whose jobs; 4294967295: of anybody
    signum: int  # the signal
    dry_run: bool = False  # jobs are only counted


class Stored(msgspec.Struct, frozen=True):
    """The job-manager.stored request: the bytes that the kvs has in a guest's job's namespace."""

    id: JobId
    nbytes: int


class StoreRoom(msgspec.Struct, frozen=True):
    """The job-manager.store-room request: the bytes that a guest's namespace is about to hold.

    ENOSPC is the answer if they are too many.
    """

    id: JobId | None  # null if the namespace is no job's
    nbytes: int


class Memo(msgspec.Struct, frozen=True):
    """The job-manager.memo request; a value of null removes its key.

    A volatile memo is in no eventlog, and is gone after a restart.
    """

    id: JobId  # the job
    memo: dict[str, Any]  # keys and values; null removes a key
    volatile: bool = False  # the memo is in no eventlog, and gone after a restart


class PostEvent(msgspec.Struct, frozen=True):
    """The job-manager.post-event.post request."""

    id: JobId
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[^\s]+$")]
    context: dict[str, Any] | None = None


class ListJobs(msgspec.Struct, frozen=True):
    """The job-manager.list request; 0 is no limit."""

    max_entries: Annotated[int, msgspec.Meta(ge=0)] = 0  # at most so many jobs; 0: all


class ListedJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job of the job-manager.list response."""

    id: JobId
    userid: int
    urgency: int
    priority: int
    t_submit: float
    state: int
    annotations: dict[str, Any] | None = None
    dependencies: list[str] | None = None


class Listed(msgspec.Struct, frozen=True):
    """The job-manager.list response."""

    jobs: list[ListedJob]


class GetAttr(msgspec.Struct, frozen=True):
    """The job-manager.getattr request; the response has a value for each name."""

    id: JobId  # the job
    attrs: list[str]  # eventlog, jobspec, R: what is wanted


class Update(msgspec.Struct, frozen=True):
    """The job-manager.update request: values by jobspec key path."""

    id: JobId  # the job
    updates: dict[str, Any]  # new values by key of the jobspec


ANY_JOB: Final = (1 << 64) - 1  # flux-core's FLUX_JOBID_ANY


class Wait(msgspec.Struct, frozen=True):
    """The job-manager.wait request; ANY_JOB, or -1 as it is written on Flux's own wire, is any."""

    id: Annotated[int, msgspec.Meta(ge=-1)]  # the job; -1: any that can be waited for

    @property
    def is_for_any(self) -> bool:
        return self.id in (-1, ANY_JOB)


class AllocCounts(msgspec.Struct, frozen=True):
    """The job-manager.alloc-query response: jobs that wait to be sent, that were sent, that run."""

    queue_length: int
    alloc_pending: int
    running: int


class Waited(msgspec.Struct, frozen=True):
    """The job-manager.wait response; it has no `waitstatus` if an exception ended the job."""

    id: JobId
    success: bool
    errstr: str
    waitstatus: int | None = None


class HistoryGet(msgspec.Struct, frozen=True):
    """The job-manager.history.get request: a slice in Python's spelling, such as "[:4]"."""

    slice: str  # of the jobs of the sender, the newest first, as Python writes it


class JobIds(msgspec.Struct, frozen=True):
    """The job-manager.history.get response."""

    jobs: list[JobId]


class Purge(msgspec.Struct, frozen=True):
    """The job-manager.purge request; `age_limit` in seconds.

    A job is purged when it is beyond either limit. Without `force` such jobs are only counted.
    """

    # seconds since a job ended; older jobs are purged; -1: no limit
    age_limit: Annotated[float, msgspec.Meta(ge=UNLIMITED)] = UNLIMITED
    # jobs that may stay, the newest; -1: no limit
    num_limit: Annotated[int, msgspec.Meta(ge=UNLIMITED)] = UNLIMITED
    batch: Annotated[int, msgspec.Meta(ge=1)] = 50  # at most so many jobs in one request
    force: bool = False  # jobs are purged, not only counted


class PurgeId(msgspec.Struct, frozen=True):
    """The job-manager.purge-id request; without `force` the job is only counted."""

    id: JobId  # the job
    force: bool | int = False  # it is purged, not only counted


class Purged(msgspec.Struct, frozen=True):
    """The responses of job-manager.purge and job-manager.purge-id."""

    count: int


class SchedStats(msgspec.Struct, frozen=True):
    """The state of the link to the scheduler, and numbers of jobs that wait or were sent."""

    link: str
    waiting: int
    outstanding: int


class ExecStats(msgspec.Struct, frozen=True):
    """The name of the execution service, "" if there is none."""

    service: str


class Stats(msgspec.Struct, frozen=True):
    """The job manager's part of job-manager.stats-get; `states` has numbers of jobs by state.

    `queues` has those of active jobs by queue; "" is the anonymous queue. `alloc_seconds` has the
    times from submit to alloc, since the job manager has started. `housekeeping` has what
    runs on the ranks of jobs that have ended.
    """

    states: dict[str, int]
    queues: dict[str, dict[str, int]]
    sched: SchedStats
    exec: ExecStats
    inactive_jobs: int
    alloc_seconds: Histogram
    housekeeping: Housekeeping


CANCEL_TYPE: Final = "cancel"  # of the exception by which a user ends a job


class JobException(msgspec.Struct, frozen=True):
    """The event job-exception; None if the exception has no `wait_status`."""

    id: JobId
    type: str
    severity: int
    wait_status: WaitStatus | None = None


class QueueCounts(msgspec.Struct, frozen=True):
    """What job-list reads of a job-manager.stats-get response; `queues` as in `Stats`."""

    queues: dict[str, dict[str, int]]


STATS: Final = codec(QueueCounts)
RAISE: Final = codec(Raise)
RAISE_ALL: Final = codec(RaiseAll)
COUNTED: Final = codec(Counted)
URGENCY: Final = codec(Urgency)
OLD_URGENCY: Final = codec(OldUrgency)
KILL: Final = codec(Kill)
KILL_ALL: Final = codec(KillAll)
STORED: Final = codec(Stored)
STORE_ROOM: Final = codec(StoreRoom)
MEMO: Final = codec(Memo)
POST_EVENT: Final = codec(PostEvent)
LIST: Final = codec(ListJobs)
GETATTR: Final = codec(GetAttr)
UPDATE: Final = codec(Update)
WAIT: Final = codec(Wait)
ALLOC_COUNTS: Final = codec(AllocCounts)
WAITED: Final = codec(Waited)
HISTORY_GET: Final = codec(HistoryGet)
JOB_IDS: Final = codec(JobIds)
PURGE: Final = codec(Purge)
PURGE_ID: Final = codec(PurgeId)
PURGED: Final = codec(Purged)
JOB_EXCEPTION: Final = codec(JobException)
