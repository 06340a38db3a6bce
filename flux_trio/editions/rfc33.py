"""RFC 33, Flux Job Queues: what administrators and users ask about queues, and what is answered.

The classic text names no payload; the newest one describes the status of a queue. The others are
flux-core's. `silent` and `held` in a status are our own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from flux_trio.editions.codec import codec


class QueueList(msgspec.Struct, frozen=True):
    """The job-manager.queue-list response: the named queues, and which one is the default."""

    queues: list[str]
    default: str | None = None


class QueueStatusRequest(msgspec.Struct, frozen=True):
    """The job-manager.queue-status request; without a name it is about the anonymous queue."""

    name: str | None = None  # of the queue; none: the only one, which has no name


class QueueStatus(msgspec.Struct, frozen=True):
    """The job-manager.queue-status response: whether a queue takes jobs and schedules them.

    `blocked` says what keeps a started queue from scheduling: "scheduler", or "parent" for a
    virtual queue. `silent` has one text for each service that jobs wait for. `held` says why
    plugins hold jobs of the queue, and how many.
    """

    enable: bool
    start: bool
    disable_reason: str | None = None
    stop_reason: str | None = None
    blocked: str | None = None
    silent: list[str] | None = None
    held: dict[str, int] | None = None
    parent: str | None = None  # of a virtual queue


class QueueEnable(msgspec.Struct, frozen=True):
    """The job-manager.queue-enable request: take jobs, or refuse them."""

    enable: bool  # whether jobs may be submitted
    all: bool = False  # all queues are meant
    name: str | None = None  # of the queue
    reason: str | None = None  # why it is disabled
    nocheckpoint: bool = False  # after a restart the queue is as it was before


class QueueStart(msgspec.Struct, frozen=True):
    """The job-manager.queue-start request: schedule jobs, or stop scheduling them."""

    start: bool  # whether jobs may start
    all: bool = False  # all queues are meant
    name: str | None = None  # of the queue
    reason: str | None = None  # why it is stopped
    nocheckpoint: bool = False  # after a restart the queue is as it was before


class QueueWait(msgspec.Struct, frozen=True):
    """The job-manager.drain and job-manager.idle requests; without a name they mean all queues."""

    name: str | None = None  # of the queue; none: all jobs


class QueueIdle(msgspec.Struct, frozen=True):
    """The job-manager.idle response: how many jobs wait."""

    pending: int


class Hindrance(msgspec.Struct, frozen=True):
    """The job-manager.hindrance request: why a service cannot do its part, "" when it can again."""

    reason: str
    disk_free: int | None = None  # bytes; the kvs says it


class SavedQueue(msgspec.Struct, frozen=True, omit_defaults=True):
    """One queue in the checkpoint; without a name it is the anonymous queue."""

    enable: bool
    start: bool
    name: str | None = None
    disable_reason: str | None = None
    stop_reason: str | None = None


class Checkpoint(msgspec.Struct, frozen=True):
    """The queues; `all_stopped` is the reason why all of them are stopped, in a restored copy."""

    queues: list[SavedQueue]
    version: int = 1
    all_stopped: str | msgspec.UnsetType = msgspec.UNSET


def write_checkpoint(
    queues: Iterable[SavedQueue], all_stopped: str | msgspec.UnsetType = msgspec.UNSET
) -> str:
    """The state of the queues as the KVS keeps it: flux-core's object, as JSON."""
    return msgspec.json.encode(Checkpoint(list(queues), all_stopped=all_stopped)).decode()


def read_checkpoint(text: str) -> Checkpoint:
    """Return a checkpoint. Raises msgspec.MsgspecError."""
    return msgspec.json.decode(text, type=Checkpoint)


QUEUE_LIST: Final = codec(QueueList)
QUEUE_STATUS_REQUEST: Final = codec(QueueStatusRequest)
QUEUE_STATUS: Final = codec(QueueStatus)
QUEUE_ENABLE: Final = codec(QueueEnable)
QUEUE_START: Final = codec(QueueStart)
QUEUE_WAIT: Final = codec(QueueWait)
QUEUE_IDLE: Final = codec(QueueIdle)
HINDRANCE: Final = codec(Hindrance)
