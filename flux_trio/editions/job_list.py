"""What users ask job-list and job-info, and what they are answered; flux-core's payloads.

They are the same in all editions. `clock_step` in a row is our own: by how many seconds the wall
clock was set while the job ran.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from flux_trio.editions.codec import Codec, as_payload, codec
from flux_trio.editions.common import CreditKey
from flux_trio.formats import EVENTLOG, PerResource
from flux_trio.formats.meanings import JobId, JobRow, Time
from flux_trio.messages import USERID_UNKNOWN, Errno, FluxError, Payload, Request

Row: TypeAlias = JobRow
"""A job as it is listed, by key."""


class List(msgspec.Struct, frozen=True):
    """The job-list.list request; `max_entries` 0 is all.

    `since` and `results` are about inactive jobs only: those that ended after that time, and with
    one of these results (a mask, 0 for any). Without `states`, a mask too, it is about pending and
    running jobs; without `queues` about those of the default queue (RFC 33, Job Submission and
    Listing Tools). An empty list is all queues.

    Flux's own programs send `attrs`, the keys that a row is to have, or "all". Such a list is about
    the jobs of `constraint`, whatever their state and queue. Older ones have no constraint, but
    `states` and the other keys: `constrained` makes one of them.
    """

    max_entries: int = 1000  # at most so many jobs; 0: all
    states: int | None = None  # a mask of states
    userid: int = USERID_UNKNOWN  # of the jobs; 4294967295: anybody
    since: Time = 0.0  # finished jobs that ended after that time (seconds since the Unix epoch)
    results: int = 0  # a mask of results of finished jobs; 0: any
    name: str = ""  # of the jobs
    queue: str | None = None  # of the jobs; only of older programs, with attrs and states
    queues: list[str] | None = None  # our own: of the jobs
    # our own: how many responses may be sent before more is granted
    credit: CreditKey | None = None
    attrs: list[str] | None = None  # the keys of a row, or "all"
    constraint: dict[str, Any] | None = None  # which jobs (RFC 31), as a tree of operators

    def constrained(self) -> List:
        """Return the list that is meant, with all that older programs ask for in `constraint`.

        Raises FluxError(EPROTO).
        """
        since = 0.0 if self.attrs is None else self.since  # no earlier one for Flux's own programs
        for key, value in (("max_entries", self.max_entries), ("since", since)):
            if value < 0:
                text = f"invalid payload: {key}: expected at least 0, got {value}"
                raise FluxError(Errno.EPROTO, text)
        if self.attrs is None or self.constraint is not None or self.states is None:
            return self
        asked = {
            "userid": None if self.userid == USERID_UNKNOWN else self.userid,
            "name": self.name or None,
            "queue": self.queue,
            "states": self.states or None,
            "results": self.results or None,
        }
        tree = {"and": [{key: [value]} for key, value in asked.items() if value is not None]}
        return List(self.max_entries, since=self.since, attrs=self.attrs, constraint=tree)

    def is_about(self, userid: int) -> bool:
        """Return whether jobs of a user may be listed, who is USERID_UNKNOWN if not known yet."""
        return USERID_UNKNOWN in (self.userid, userid) or self.userid == userid

    def has(self, row: Row, states: int, queues: Collection[str]) -> bool:
        """Return whether a job is listed, by its row, among jobs in `states` and `queues`, if any.

        `constraint` is not looked at.
        """
        result = row.get("result")
        return (
            bool(row["state"] & states)
            and self.is_about(row["userid"])
            and (result is None or not self.results or bool(result & self.results))
            and (not self.name or row.get("name") == self.name)
            and (not queues or row.get("queue") in queues)
        )


class ListId(msgspec.Struct, frozen=True):
    """The job-list.list-id request; `attrs` as in `List`.

    With `state`, a mask, the answer comes when the job has been in one of these states, or is over.
    """

    id: JobId  # the job
    attrs: list[str] | None = None  # the keys of its row, or "all"
    state: int = 0  # a mask: wait until the job has been in one of these states, or is over


def id_in(request: Request) -> int:
    """The job that a request is about, whatever else it has. Raises FluxError."""
    return LIST_ID.read(request).id


class ListedJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a row has of a job's eventlog; times are seconds since the Unix epoch."""

    id: JobId
    userid: int
    urgency: int
    t_submit: float
    state: int
    exception_occurred: bool | None = None  # None of an active job without one, as in flux-core
    priority: int | None = None  # None until the first priority event
    t_depend: float | None = None
    t_priority: float | None = None
    t_sched: float | None = None
    t_run: float | None = None
    t_cleanup: float | None = None
    t_inactive: float | None = None
    success: bool | None = None
    result: int | None = None
    exception_type: str | None = None
    exception_severity: int | None = None
    exception_note: str | None = None
    waitstatus: int | None = None
    annotations: dict[str, Any] | None = None
    dependencies: list[str] | None = None
    expiration: float | None = None  # after resource-update events
    clock_step: float | None = None


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a row has of a job's jobspec and R; None is not known."""

    name: str | None = None
    cwd: str | None = None
    queue: str | None = None
    ntasks: int | None = None
    nnodes: int | None = None
    ncores: int | None = None
    duration: float | None = None
    ranks: str | None = None
    nodelist: str | None = None
    expiration: float | None = None
    per_resource: PerResource | None = None  # from which `ntasks` follows

    def updated(self, later: Facts) -> Facts:
        """These facts, with those of `later` in their place where it has any."""
        if later == NO_FACTS:
            return self
        both = zip(_values_of(self), _values_of(later), strict=True)
        return Facts(*(before if after is None else after for before, after in both))

    @property
    def nchars(self) -> int:
        """How many characters the texts have together."""
        return sum(len(value) for value in _values_of(self) if isinstance(value, str))


_values_of = msgspec.structs.astuple
NO_FACTS: Final = Facts()
REQUIRED: Final = frozenset(
    field.name for field in msgspec.structs.fields(ListedJob) if field.required
)
"""The keys that every row has."""


def row(job: ListedJob, facts: Facts) -> Row:
    """A job as it is listed, without the keys whose values are not known."""
    known: Row = msgspec.to_builtins(job)
    return {**msgspec.to_builtins(facts), **known}


ATTRIBUTES: Final = (
    "userid", "urgency", "priority", "t_submit", "t_depend", "t_priority", "t_sched", "t_run",
    "t_cleanup", "t_inactive", "state", "name", "cwd", "queue", "project", "bank", "ntasks",
    "ncores", "duration", "nnodes", "ranks", "nodelist", "success", "exception_occurred",
    "exception_type", "exception_severity", "exception_note", "result", "expiration", "annotations",
    "dependencies", "waitstatus",
)  # fmt: skip
"""The keys of a row that Flux's own programs may ask for, besides `id`."""
_ALL: Final = "all"


def check_attrs(attrs: Sequence[str]) -> None:
    """Raise FluxError(EINVAL) for a key that no row has."""
    unknown = [name for name in attrs if name != _ALL and name not in ATTRIBUTES]
    if unknown:
        raise FluxError(Errno.EINVAL, f"{unknown[0]} is not a valid attribute")


def chosen(listed: Row, attrs: Sequence[str]) -> Row:
    """The keys of a row that Flux's own programs ask for, with 0 where there is no time limit."""
    whole = {"duration": 0.0, **listed}
    if "nodelist" in listed:
        whole.setdefault("expiration", 0.0)
    wanted = (*attrs, *ATTRIBUTES) if _ALL in attrs else attrs
    return {"id": listed["id"]} | {key: whole[key] for key in wanted if key in whole}


def attributes() -> Payload:
    """The job-list.list-attrs response."""
    return {"attrs": [*ATTRIBUTES, _ALL]}


def rows(listed: Sequence[Row]) -> Payload:
    """A job-list.list response: all that is listed, or a page of a stream."""
    return {"jobs": listed}


def first_rows(listed: Sequence[Row]) -> Payload:
    """The first page of a list for Flux's own programs, to which it tells that it is a stream."""
    return {"jobs": listed, "version": 1}


def one_row(listed: Row) -> Payload:
    """The job-list.list-id response."""
    return {"job": listed}


class JobStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """The job-list.job-stats response: jobs by state, and how those that are over ended.

    Each of `queues` has a name, and no queues.
    """

    job_states: dict[str, int]
    successful: int
    failed: int
    canceled: int
    timeout: int
    inactive_purged: int
    name: str | None = None
    queues: list[JobStats] | None = None


LOOKUP_JSON_DECODE: Final = 1  # flux-core, libjob/job.h
LOOKUP_CURRENT: Final = 2
WATCH_WAITCREATE: Final = 1
WATCH_INITIAL_SENTINEL: Final = 2


class Lookup(msgspec.Struct, frozen=True):
    """The job-info.lookup request; `current` applies the updates that the eventlog tells of.

    Flux's own programs say both in `flags`: 1 is for values that are objects instead of texts, 2
    for `current`.
    """

    id: JobId  # the job
    keys: list[str]  # of the job's directory, such as eventlog, jobspec, R, J
    current: bool = False  # our own: as 2 in flags
    flags: int | None = None  # 1: values are objects, not texts; 2: updates are applied

    @property
    def is_current(self) -> bool:
        """Return whether updates are to be applied."""
        return self.current or bool((self.flags or 0) & LOOKUP_CURRENT)


def found(jobid: int, values: Mapping[str, object]) -> Payload:
    """The job-info.lookup response: the values that were asked for, by their own keys."""
    return {"id": jobid, **values}


class Watch(msgspec.Struct, frozen=True):
    """The job-info.eventlog-watch request; `path` is below the job's directory.

    Without `follow` the stream ends with what is stored now. Flux's own programs send `flags`: 1
    waits for an eventlog that is not there yet, 2 asks for an empty object after what is there
    already.
    """

    id: JobId  # the job
    path: str = EVENTLOG  # of the eventlog below the job's directory
    follow: bool = True  # our own: false ends the stream with what is stored now
    # our own: how many responses may be sent before more is granted
    credit: CreditKey | None = None
    # 1: wait for an eventlog that is not there yet; 2: an empty object after what is there
    flags: int | None = None


class UpdateWatch(msgspec.Struct, frozen=True):
    """The job-info.update-watch request: the key is R or jobspec."""

    id: JobId  # the job
    key: str  # R or jobspec
    flags: int = 0  # 0; others are refused


def updated(key: str, value: Any) -> Payload:
    """Return a job-info.update-watch response: R or the jobspec, under its name."""
    return {key: value}


class WatchedLine(msgspec.Struct, frozen=True):
    """A job-info.eventlog-watch response: one line of the eventlog.

    It has its newline if the request was one of Flux's own programs.
    """

    event: str


class JobCounts(msgspec.Struct, frozen=True):
    """The jobs that job-list knows, by the lists in which they are."""

    pending: int
    running: int
    inactive: int


class Waits(msgspec.Struct, frozen=True):
    """The jobs for which list-id requests wait: until it is known, or until it has a state."""

    waits: int
    lookups: int = 0


class Stats(msgspec.Struct, frozen=True):
    """What job-list.stats-get counts beside requests; `watches` are open eventlog watches."""

    jobs: JobCounts
    watches: int
    idsync: Waits
    stats_watchers: int


class InfoStats(msgspec.Struct, frozen=True):
    """What job-info.stats-get counts: open lookups and streams.

    `update_lookups` is always 0: flux-core tells it, and counts it no more.
    """

    lookups: int
    watchers: int
    guest_watchers: int  # those of watchers that follow a log of guest.
    update_watchers: int
    update_lookups: int = 0


LIST: Final = codec(List)
LIST_ID: Final = codec(ListId)
JOB_STATS: Final[Codec[JobStats]] = Codec(as_payload, codec(JobStats).read)
LOOKUP: Final = codec(Lookup)
WATCH: Final = codec(Watch)
INFO_STATS: Final = codec(InfoStats)
UPDATE_WATCH: Final = codec(UpdateWatch)
WATCHED_LINE: Final = codec(WatchedLine)
