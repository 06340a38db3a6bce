"""What the job manager does and waits for: its actions, timers and open calls. Pure.

An open call is a frozen value that says what its answer is for. The core finds the part that takes
the answer in one `match`. What plugins are asked, and what the
scheduler is asked for an update, is in `hooks.waiting`.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from flux_trio.cores.job_manager.hooks.waiting import BypassStored, Proposal
from flux_trio.cores.job_manager.requests.entrance import FindUser, UserFound
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.turns import CommonAction, CommonInput
from flux_trio.editions.journal import Ended
from flux_trio.formats import LOST_AND_FOUND, ResourceSet, format_fluid
from flux_trio.formats.meanings import JobId, KvsKey, Meaning, Usec
from flux_trio.messages import Errno, Request, Response, respond_error
from flux_trio.protocols import (
    HookAnswered,
    HookPostponed,
    Operation,
    PluginAction,
    PluginInterests,
    PluginReplayed,
    PluginsChanged,
)

# --- events


class EventsStored(msgspec.Struct, frozen=True):
    """The oldest commit of events is answered: messages wait for it."""


class Absent(msgspec.Struct, frozen=True):
    """A job that is not active, and how a request about it is refused: errnum and text.

    `inactive_errnum` is for one that is stored, `errnum` and `text` for one that is unknown.
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
    """The eventlog of an absent job is read: it decides how `request` is refused."""

    request: Request
    absent: Absent


# --- the scheduler


class GrantsRead(msgspec.Struct, frozen=True):
    """R of these grants is read: job ids, each with the number of its grant."""

    grants: tuple[tuple[JobId, int], ...]


class InventoryRead(msgspec.Struct, frozen=True):
    """The resource service tells what the instance has, after a sched-hello."""


class InventoryReadAgain(msgspec.Struct, frozen=True):
    """The same, since this grant names `resources` that the instance does not seem to have."""

    jobid: JobId
    grant: int
    resources: ResourceSet


class ExpirationTold(msgspec.Struct, frozen=True):
    """The scheduler was told until when the job may run; the job manager goes by that already."""

    jobid: JobId


# --- users


class KillSent(msgspec.Struct, frozen=True):
    """The execution service sends the signal that `request` asks for."""

    request: Request


class HistoryRead(msgspec.Struct, frozen=True):
    """A page of the index of finished jobs is read."""


# --- queues


class QueuesRead(msgspec.Struct, frozen=True):
    """What an earlier life has stored of the queues is read."""


class QueuesStored(msgspec.Struct, frozen=True):
    """The change of queues that `request` asks for is stored."""

    request: Request


# --- restart


class MarksRead(msgspec.Struct, frozen=True):
    """What earlier lives have written down is read: greatest id purged, migration under way."""


class LastRead(msgspec.Struct, frozen=True):
    """The last of the job directories is read: it has the greatest id."""


class ActiveRead(msgspec.Struct, frozen=True):
    """A page of the index of active jobs is read."""


class JobsRead(msgspec.Struct, frozen=True):
    """What is stored of the jobs of a page is read; the next page begins at `after`.

    `after` is None for the last page.
    """

    jobids: tuple[JobId, ...]
    after: KvsKey | None


class EndedCount(msgspec.Struct, frozen=True):
    """Finished jobs are counted."""


class MigrationPage(msgspec.Struct, frozen=True):
    """A page of the keys of all jobs is read."""


class MigrationJobs(msgspec.Struct, frozen=True):
    """Eventlogs and jobspecs of these jobs are read; `after` is None for the last page."""

    jobids: tuple[JobId, ...]
    after: KvsKey | None


class MigrationStored(msgspec.Struct, frozen=True):
    """A part of the index is stored; `after` is None for the last one."""

    after: KvsKey | None


MigrationStep: TypeAlias = MigrationPage | MigrationJobs | MigrationStored
ReplayStep: TypeAlias = MarksRead | LastRead | ActiveRead | JobsRead | EndedCount | MigrationStep


# --- jobs that are set aside


class Aside(msgspec.Struct, frozen=True):
    """A job that is being set aside: which of its keys is bad, and why."""

    jobid: JobId
    key: KvsKey
    reason: Annotated[str, Meaning.FOR_PEOPLE]

    @property
    def directory(self) -> str:
        """Where its values are."""
        return format_fluid(self.jobid, "kvs")

    def new_key(self, key: str) -> str:
        """Where the value of `key` goes."""
        return f"{LOST_AND_FOUND}{key.removeprefix('job')}"

    def bad_key(self, key: str) -> str:
        """Where what is left of a bad value goes: it is no eventlog, or R, any more."""
        return f"{self.new_key(key)}-damaged"


class ValuesRead(msgspec.Struct, frozen=True):
    """Some of the job's values are read."""

    job: Aside


class ValuesCopied(msgspec.Struct, frozen=True):
    """Their copies are stored; the next values come after `after`, None after the last."""

    job: Aside
    after: KvsKey | None


class RowsRead(msgspec.Struct, frozen=True):
    """A page of the index of finished jobs is read: the job's row is in it or comes later."""

    job: Aside


class SetAside(msgspec.Struct, frozen=True):
    """The last commit is stored; `usec` is when the job ended, None if it was in no index."""

    job: Aside
    usec: Usec | None


AsideStep: TypeAlias = ValuesRead | ValuesCopied | RowsRead | SetAside


# --- purges


class Run(msgspec.Struct, frozen=True):
    """One purge by age and number: what it may take, and what it has taken."""

    request: Request | None  # None: by the configuration, which has the limits
    before: Usec  # jobs that ended before this time are too old
    num_limit: int
    left: int  # of its batch
    force: bool
    count: int = 0
    after: KvsKey = ""  # where the next page begins, when jobs are only counted


class Named(msgspec.Struct, frozen=True):
    """The purge of one job, by its id; without `force` the job is only counted."""

    request: Request
    jobid: JobId
    force: bool


class RunRead(msgspec.Struct, frozen=True):
    """The oldest jobs are read, at most `limit`."""

    run: Run
    limit: int


class RunSized(msgspec.Struct, frozen=True):
    """The jobs are looked for that have output of more than one piece."""

    run: Run
    jobs: tuple[Ended, ...]
    goes_on: bool


class RunStored(msgspec.Struct, frozen=True):
    """The jobs are removed."""

    run: Run
    jobs: tuple[Ended, ...]
    goes_on: bool


class NamedRead(msgspec.Struct, frozen=True):
    """The eventlog of the job is read."""

    named: Named


class NamedStored(msgspec.Struct, frozen=True):
    """The job is removed."""

    named: Named
    job: Ended


PurgeStep: TypeAlias = RunRead | RunSized | RunStored | NamedRead | NamedStored

# --- all together

JobCall: TypeAlias = (
    EventsStored
    | GrantsRead
    | InventoryRead
    | InventoryReadAgain
    | ExpirationTold
    | Proposal
    | BypassStored
)
"""Calls on whose answers jobs go on."""

OtherCall: TypeAlias = (
    Refusal
    | KillSent
    | HistoryRead
    | QueuesRead
    | QueuesStored
    | ReplayStep
    | AsideStep
    | PurgeStep
)
"""Calls for users, queues and what is stored."""

JobManagerInput: TypeAlias = (
    CommonInput
    | HookAnswered
    | HookPostponed
    | Operation
    | PluginInterests
    | PluginsChanged
    | UserFound
)
JobManagerCall: TypeAlias = JobCall | OtherCall
JobManagerTimer: TypeAlias = Literal["purge", "sweep"]
JobManagerAction: TypeAlias = CommonAction | FindUser | PluginReplayed | PluginAction
JobManagerOutbox: TypeAlias = Outbox[JobManagerCall, JobManagerAction, JobManagerTimer]
