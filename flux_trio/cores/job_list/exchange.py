"""What the core asks of other services, and what the answers are for. Pure."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from flux_trio.cores.job_list.records import Record
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.streams import StreamKey
from flux_trio.cores.turns import CommonAction
from flux_trio.editions.journal import Ended
from flux_trio.formats.meanings import JobId, KvsKey
from flux_trio.messages import Request, topics

Listed: TypeAlias = Record | Ended
"""A job to be listed: an active one, or what the index says of a finished one."""


class JournalTold(msgspec.Struct, frozen=True):
    """Answers job-manager.events-journal: each response is a batch of events."""


class ActiveListed(msgspec.Struct, frozen=True):
    """Answers the read of a page of the index of active jobs."""

    scan: int


class ActiveLogs(msgspec.Struct, frozen=True):
    """Answers the read of eventlogs of active jobs; the next page begins at `after`, if any."""

    scan: int
    jobids: tuple[JobId, ...]
    after: KvsKey | None


class EndedPage(msgspec.Struct, frozen=True):
    """Answers the read of a page of the index of finished jobs."""

    scan: int


class StrayLog(msgspec.Struct, frozen=True):
    """Answers the read of the eventlog of a job that only the journal has told of."""

    scan: int
    jobid: JobId


class SliceRead(msgspec.Struct, frozen=True):
    """Answers the read of what a list says of these jobs."""

    list: StreamKey
    jobs: tuple[Listed, ...]
    keys: tuple[tuple[JobId, str], ...]  # job id and name, as the values come


class IdRead(msgspec.Struct, frozen=True):
    """Answers the read of what list-id says of its job."""

    request: Request
    job: Record
    keys: tuple[tuple[JobId, str], ...]


class RecordRead(msgspec.Struct, frozen=True):
    """Answers the read of the eventlog of the job that a request is about."""

    request: Request
    jobid: JobId


class KeyRead(msgspec.Struct, frozen=True):
    """Answers the read of `key`, for the job-info.lookup of this number."""

    lookup: int
    key: str


class LogChanged(msgspec.Struct, frozen=True):
    """Answers the kvs.watch for a stream of an eventlog."""

    stream: StreamKey


class LogRead(msgspec.Struct, frozen=True):
    """Answers the `number`th read of `key`, for a stream of an eventlog."""

    stream: StreamKey
    key: KvsKey
    number: int


class JobCounted(msgspec.Struct, frozen=True):
    """Answers whether the job is still stored of a stream whose `number`th read found nothing."""

    stream: StreamKey
    number: int


ScanCall: TypeAlias = ActiveListed | ActiveLogs | EndedPage | StrayLog
JobListCall: TypeAlias = (
    ScanCall
    | JournalTold
    | SliceRead
    | IdRead
    | RecordRead
    | KeyRead
    | LogChanged
    | LogRead
    | JobCounted
)
JobListTimer: TypeAlias = str | int
"""The journal's topic, for the next attempt at it; or the user whose lists go on."""

RETRY_TIMER = topics.JOB_JOURNAL

Exchange: TypeAlias = Outbox[JobListCall, CommonAction, JobListTimer]
