"""The calls of the core to other services. Each value says what the answer is for. Pure."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from flux_trio.cores.job_list.records import Record
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.state import Part
from flux_trio.cores.stored_jobs import JobsWanted
from flux_trio.cores.streams import StreamKey
from flux_trio.cores.turns import CommonAction, CommonInput
from flux_trio.editions import job_list
from flux_trio.editions.common import CANCEL
from flux_trio.editions.journal import Ended
from flux_trio.formats.meanings import JobId, KvsKey, Matchtag
from flux_trio.messages import Request, topics

Listed: TypeAlias = Record | Ended
"""A job to be listed: an active job, or the entry of a finished job in the index."""


class JournalFollowed(msgspec.Struct, frozen=True):
    """Answers job-manager.journal: each response is a batch of events."""


class ActiveListed(msgspec.Struct, frozen=True):
    """Answers the read of a page of the index of active jobs."""

    scan: int


class ActiveLogs(msgspec.Struct, frozen=True):
    """Answers the read of eventlogs of active jobs; the next page begins at `after`, if any."""

    scan: int
    jobs: JobsWanted
    after: KvsKey | None


class EndedPage(msgspec.Struct, frozen=True):
    """Answers the read of a page of the index of finished jobs."""

    scan: int


class StrayLog(msgspec.Struct, frozen=True):
    """Answers the read of the eventlog of a job that is known from the journal only."""

    scan: int
    jobid: JobId


class SliceRead(msgspec.Struct, frozen=True):
    """Answers the read of the values that a list shows of these jobs."""

    list: StreamKey
    jobs: tuple[Listed, ...]
    keys: tuple[tuple[JobId, str], ...]  # job id and key name, in the order of the values


class IdRead(msgspec.Struct, frozen=True):
    """Answers the read of the values that list-id shows of its job."""

    request: Request
    job: Record
    keys: tuple[tuple[JobId, str], ...]


class RecordRead(msgspec.Struct, frozen=True):
    """Answers the read of the eventlog of the job that a request is about."""

    request: Request
    jobid: JobId


class KeyRead(msgspec.Struct, frozen=True):
    """Answers the read of `key` for the job-info.lookup with this number."""

    lookup: int
    key: str


class LogChanged(msgspec.Struct, frozen=True):
    """Answers the kvs.watch for a stream of an eventlog."""

    stream: StreamKey


class OutputStored(msgspec.Struct, frozen=True):
    """Answers the job-exec.copy for a stream of the output of a job that runs."""

    stream: StreamKey


class LogRead(msgspec.Struct, frozen=True):
    """Answers the read of the key where a stream of an eventlog is."""

    stream: StreamKey


class JobCounted(msgspec.Struct, frozen=True):
    """Answers whether a job is still stored; the read of its stream has found no value."""

    stream: StreamKey


class UpdatedRead(msgspec.Struct, frozen=True):
    """Answers the read of the value whose updates a stream tells."""

    stream: StreamKey


class QueuesCounted(msgspec.Struct, frozen=True):
    """Answers how many active jobs each queue has, for a job-stats request."""

    request: Request


ScanCall: TypeAlias = ActiveListed | ActiveLogs | EndedPage | StrayLog
JobListCall: TypeAlias = (
    ScanCall
    | JournalFollowed
    | SliceRead
    | IdRead
    | RecordRead
    | KeyRead
    | LogChanged
    | OutputStored
    | LogRead
    | JobCounted
    | UpdatedRead
    | QueuesCounted
)
JobListTimer: TypeAlias = Literal["job-manager.journal", "slice", "stats"] | int
"""The journal's topic, for the next attempt to open it; `SLICE_TIMER`, for the next slice of its
events; `STATS_TIMER`, for those who follow job-stats; or the user whose lists go on."""

RETRY_TIMER: Final = "job-manager.journal"
SLICE_TIMER: Final = "slice"
STATS_TIMER: Final = "stats"

JobListInput: TypeAlias = CommonInput[JobListTimer]
JobListAction: TypeAlias = CommonAction[JobListTimer]
Exchange: TypeAlias = Outbox[JobListCall, JobListAction, JobListTimer]


class WaitingRequests(Part):
    """The requests that wait for a read, or until job-list has caught up with the job manager.

    Those of a peer that is gone are forgotten without searching others' (6.disconnect.2). All are
    by sender, and bounded by the requests that senders have open.
    """

    _open: dict[str, dict[Matchtag, Request]]  # by the matchtag of the read
    _late: dict[str, list[Request]]

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._open = {}
        self._late = {}

    def began(self, request: Request, matchtag: int) -> None:
        """Note that a read with this matchtag is under way for `request`."""
        self._open.setdefault(request.sender, {})[matchtag] = request

    def ended(self, request: Request, matchtag: int) -> None:
        """Note that the read is answered."""
        of_sender = self._open[request.sender]
        del of_sender[matchtag]
        if not of_sender:
            del self._open[request.sender]

    def put_off(self, request: Request) -> None:
        """Keep a request about a job that is not known yet."""
        self._late.setdefault(request.sender, []).append(request)

    def watched(self, request: Request) -> JobId | None:
        """Return the job of the watch that a credit or cancel is about, if the watch waits here.

        Raises FluxError.
        """
        matchtag = CANCEL.read(request).matchtag  # a credit has it, too
        sender = request.sender
        for each in [*self._open.get(sender, {}).values(), *self._late.get(sender, ())]:
            if each.matchtag == matchtag and each.topic == topics.INFO_WATCH:
                return job_list.id_in(each)
        return None

    @property
    def late_jobs(self) -> set[JobId]:
        """The jobs that list-id requests wait for until they are known."""
        late = (request for of_sender in self._late.values() for request in of_sender)
        return {job_list.id_in(each) for each in late if each.topic == topics.LIST_ID}

    def pop_late(self) -> list[Request]:
        """Remove and return the requests that were put off."""
        late, self._late = self._late, {}
        return [request for of_sender in late.values() for request in of_sender]

    def forget(self, sender: str) -> None:
        """Forget what a peer that is gone has asked."""
        self._late.pop(sender, None)
        for matchtag in self._open.pop(sender, ()):
            self._exchange.calls.close(matchtag)
