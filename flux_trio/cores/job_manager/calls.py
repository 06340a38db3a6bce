"""The actions, timers and open calls of the job manager. Pure.

An open call is a frozen value that says what its answer is for; `replies.py` finds by its type the
part that takes the answer. `waiting.py` has the questions to plugins, and those to the
scheduler about an update.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from flux_trio.cores.job_manager.waiting import BypassStored, Proposal
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.stored_jobs import JobsWanted
from flux_trio.cores.turns import CommonAction, CommonInput, NoteAll
from flux_trio.editions.journal import Ended
from flux_trio.formats import LOST_AND_FOUND, ResourceSet, format_fluid
from flux_trio.formats.meanings import JobId, KvsKey, Matchtag, Meaning, Peer, Usec
from flux_trio.messages import Errno, Request, Response, respond_error
from flux_trio.protocols import (
    Operation,
    PluginAction,
    PluginInterests,
    PluginReplayed,
    PluginReply,
    PluginsChanged,
)

# --- events


class EventsStored(msgspec.Struct, frozen=True):
    """Answers the oldest commit of events; messages wait for it."""


class Absent(msgspec.Struct, frozen=True):
    """A job that is not active, and the error for a request about it.

    `inactive_errnum` is for a finished job, `errnum` and `text` are for an unknown one.
    """

    jobid: JobId
    errnum: int = Errno.ENOENT
    text: str = "unknown job id"
    inactive_errnum: int = Errno.ENOENT

    def refusal(self, request: Request, *, is_inactive: bool) -> Response | None:
        if is_inactive:
            return respond_error(request, self.inactive_errnum, "job is inactive")
        return respond_error(request, self.errnum, self.text)


class Refusal(msgspec.Struct, frozen=True):
    """Answers the lookup of an absent job's eventlog, which decides the error for `request`."""

    request: Request
    absent: Absent


class SubmittedAgain(msgspec.Struct, frozen=True):
    """Answers the lookup of an eventlog: whether a job of `batch` ended before this start."""

    jobid: JobId
    batch: int


# --- the scheduler


class GrantsRead(msgspec.Struct, frozen=True):
    """Answers the lookup of R of these grants: job ids, each with the number of its grant."""

    grants: tuple[tuple[JobId, int], ...]


class InventoryRead(msgspec.Struct, frozen=True):
    """Answers the resource.status after a sched-hello."""


class InventoryReadAgain(msgspec.Struct, frozen=True):
    """Answers the resource.status for a grant of `resources` that seem to be unknown."""

    jobid: JobId
    grant: int
    resources: ResourceSet


class ExpirationSent(msgspec.Struct, frozen=True):
    """Answers the sched.expiration that tells the scheduler of an expiration already in force."""

    jobid: JobId


class SignOfLife(msgspec.Struct, frozen=True):
    """Answers the sched.stats-get that asks a silent scheduler whether it is alive."""


# --- users


class User(msgspec.Struct, frozen=True):
    """A user in the user database; `name` is None for a user id that it does not know."""

    name: str | None = None
    groups: frozenset[str] = frozenset()


class FindUser(msgspec.Struct, frozen=True):
    """Action: ask the user database; the answer is `UserFound`."""

    userid: int


class UserFound(msgspec.Struct, frozen=True):
    """Input: the answer of the user database."""

    userid: int
    user: User


class KillSent(msgspec.Struct, frozen=True):
    """Answers the signal that `request` asks for."""

    request: Request


class LastStored(msgspec.Struct, frozen=True):
    """Answers the read of the last job directories, which `request` asks about."""

    request: Request


class HistoryRead(msgspec.Struct, frozen=True):
    """Answers the read of a page of the index of finished jobs."""


# --- housekeeping


class Housekeep(msgspec.Struct, frozen=True):
    """Action: run a command for each of `pending`, the ranks that a job had.

    `HousekeepingEnded` comes for each. `again`: an earlier run may have left processes.
    """

    jobid: JobId
    userid: int
    command: tuple[str, ...]
    ranks: str  # all ranks of the job, an idset
    pending: tuple[int, ...]
    again: bool = False


class HousekeepingSignal(msgspec.Struct, frozen=True):
    """Action: send a signal to the commands of a job on these ranks."""

    jobid: JobId
    ranks: tuple[int, ...]
    signum: int


class HousekeepingEnded(msgspec.Struct, frozen=True):
    """Input: the command for a rank has ended; `failure` says how it has failed, or is empty."""

    jobid: JobId
    rank: int
    failure: Annotated[str, Meaning.FOR_PEOPLE] = ""


class HousekeepingRead(msgspec.Struct, frozen=True):
    """Answers the lookup of what housekeeping held before this start."""


class RankDrained(msgspec.Struct, frozen=True):
    """Answers the drain of a rank whose housekeeping has failed."""

    jobid: JobId
    rank: int


# --- queues


class QueuesRead(msgspec.Struct, frozen=True):
    """Answers the lookup of the stored state of the queues."""


class QueuesStored(msgspec.Struct, frozen=True):
    """Answers the commit of the change of queues that `request` asks for."""

    request: Request


class QueuesNoted(msgspec.Struct, frozen=True):
    """Answers the commit of queues as a start or a configuration has left them."""


# --- restart


class MarkRead(msgspec.Struct, frozen=True):
    """Answers the lookup of the greatest purged id."""


class LastRead(msgspec.Struct, frozen=True):
    """Answers the read of the last job directories, which have the greatest id."""


class ActiveRead(msgspec.Struct, frozen=True):
    """Answers the read of a page of the index of active jobs."""


class JobsRead(msgspec.Struct, frozen=True):
    """Answers a lookup of the values of the jobs on a page; the next page begins at `after`.

    `after` is None for the last page.
    """

    jobs: JobsWanted
    after: KvsKey | None


class BytesRead(msgspec.Struct, frozen=True):
    """Answers the read of a page of the finished jobs, whose bytes are counted."""


class EndedCount(msgspec.Struct, frozen=True):
    """Answers the count of finished jobs."""


ReplayStep: TypeAlias = MarkRead | LastRead | ActiveRead | JobsRead | EndedCount


# --- jobs that are set aside


class Aside(msgspec.Struct, frozen=True):
    """A job that is being set aside: its bad key, and the reason."""

    jobid: JobId
    key: KvsKey
    reason: Annotated[str, Meaning.FOR_PEOPLE]

    @property
    def directory(self) -> str:
        return format_fluid(self.jobid, "kvs")

    def new_key(self, key: str) -> str:
        """Return the key to which the value of `key` is copied."""
        return f"{LOST_AND_FOUND}{key.removeprefix('job')}"

    def bad_key(self, key: str) -> str:
        """Return the key for the rest of a bad value, which is not a valid eventlog or R."""
        return f"{self.new_key(key)}-damaged"


class ValuesRead(msgspec.Struct, frozen=True):
    """Answers the read of some of the job's values."""

    job: Aside


class ValuesCopied(msgspec.Struct, frozen=True):
    """Answers the commit of copies; the next values come after `after`, None after the last."""

    job: Aside
    after: KvsKey | None


class RowsRead(msgspec.Struct, frozen=True):
    """Answers the read of a page of the index of finished jobs, to find the job's entry."""

    job: Aside


class SetAside(msgspec.Struct, frozen=True):
    """Answers the last commit. `usec` is when the job ended; None if it has no index entry."""

    job: Aside
    usec: Usec | None


AsideStep: TypeAlias = ValuesRead | ValuesCopied | RowsRead | SetAside


Answering: TypeAlias = Refusal | KillSent | LastStored | QueuesStored
"""Calls whose answer leads to the response to a user's request."""


# --- purges


class Run(msgspec.Struct, frozen=True):
    """A purge by age and number: its limits, and the number of jobs so far."""

    request: Request | None  # None: the configuration has the limits
    before: Usec  # jobs that ended before this time are too old
    num_limit: int
    left: int  # jobs left of its batch
    force: bool
    count: int = 0
    after: KvsKey = ""  # where the next page begins, if jobs are only counted, or only one user's
    userid: int | None = None  # a guest whose oldest jobs go, by `user-limits.finished-bytes`


class Named(msgspec.Struct, frozen=True):
    """The purge of one job, by its id; without `force` the job is only counted."""

    request: Request
    jobid: JobId
    force: bool


class RunRead(msgspec.Struct, frozen=True):
    """Answers the read of the oldest jobs, at most `limit`."""

    run: Run
    limit: int


class RunSized(msgspec.Struct, frozen=True):
    """Answers the lookup that finds jobs with more than one piece of output."""

    run: Run
    jobs: tuple[Ended, ...]
    goes_on: bool


class RunStored(msgspec.Struct, frozen=True):
    """Answers the commit that removes the jobs."""

    run: Run
    jobs: tuple[Ended, ...]
    goes_on: bool


class NamedRead(msgspec.Struct, frozen=True):
    """Answers the lookup of the eventlog of the job."""

    named: Named


class NamedStored(msgspec.Struct, frozen=True):
    """Answers the commit that removes the job."""

    named: Named
    job: Ended


PurgeStep: TypeAlias = RunRead | RunSized | RunStored | NamedRead | NamedStored


# --- what was before, for a follower of flux-core's journal


class Backlog(msgspec.Struct, frozen=True):
    """How far a follower's backlog is told; active jobs come first, then those that have ended."""

    stream: tuple[Peer, Matchtag]
    number: int  # of the follower: a later one may have the same stream
    of_ended: bool = False


class BacklogPage(msgspec.Struct, frozen=True):
    """Answers the read of a page of the index of jobs."""

    backlog: Backlog


class BacklogRead(msgspec.Struct, frozen=True):
    """Answers a lookup of the values of the jobs on a page; the next page begins at `after`.

    `after` is None for the last page.
    """

    backlog: Backlog
    jobs: JobsWanted
    after: KvsKey | None


BacklogStep: TypeAlias = BacklogPage | BacklogRead

# --- all together

JobManagerCall: TypeAlias = (
    EventsStored
    | GrantsRead
    | InventoryRead
    | InventoryReadAgain
    | ExpirationSent
    | Proposal
    | BypassStored
    | Refusal
    | SubmittedAgain
    | KillSent
    | LastStored
    | HistoryRead
    | QueuesRead
    | QueuesStored
    | QueuesNoted
    | SignOfLife
    | HousekeepingRead
    | RankDrained
    | ReplayStep
    | AsideStep
    | PurgeStep
    | BacklogStep
    | BytesRead
)
JobManagerTimer: TypeAlias = Literal["purge", "sweep", "sign-of-life", "housekeeping"]
JobManagerOwnInput: TypeAlias = (
    Operation | PluginInterests | PluginReply | PluginsChanged | UserFound | HousekeepingEnded
)
JobManagerInput: TypeAlias = CommonInput[JobManagerTimer] | JobManagerOwnInput
WithinTurn: TypeAlias = PluginInterests | NoteAll | PluginReply
"""What plugins say while a turn is under way: new interests, records for the trace, a reply."""
JobManagerOwnAction: TypeAlias = (
    FindUser | Housekeep | HousekeepingSignal | PluginReplayed | PluginAction
)
JobManagerAction: TypeAlias = CommonAction[JobManagerTimer] | JobManagerOwnAction
JobManagerOutbox: TypeAlias = Outbox[JobManagerCall, JobManagerAction, JobManagerTimer]
