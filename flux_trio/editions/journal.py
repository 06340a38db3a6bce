"""What the job manager tells the services that follow jobs: events, ends, purges.

The requests are flux-core's; `ended` and the event job-purge-inactive are our own. They are the
same in all editions.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from flux_trio.editions.codec import codec
from flux_trio.formats import Event
from flux_trio.formats.meanings import JobId, JournalEntry, Usec
from flux_trio.messages import Payload

ANNOTATIONS: Final = "annotations"
"""The name of an entry that is no event of an eventlog: it tells all annotations of a job."""

Entry: TypeAlias = JournalEntry
"""Job id, place, event. The place counts the events of the job from 0; it is -1 for annotations."""

EventObject: TypeAlias = dict[str, Any]
"""The event in an entry."""


class Ended(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One finished job; `usec` is when it became inactive, microseconds since the Unix epoch."""

    id: JobId
    usec: Usec
    userid: int
    result: int  # a protocols.JobResult
    name: int  # the mark of its name: see `cores.job_index`
    queue: int  # the mark of its queue
    nbytes: int = 0  # about what is stored of a guest's job; 0: not known, or the owner's


class Follow(msgspec.Struct, frozen=True):
    """The job-manager.events-journal request: which events are wanted."""

    allow: dict[str, int] | None = None  # names of events that are wanted, as keys; none: all
    full: bool | None = None  # refused with ENOSYS: the events of earlier are in eventlogs


class Batch(msgspec.Struct, frozen=True):
    """A job-manager.events-journal response; `ended` are the jobs that its events end."""

    events: list[tuple[JobId, int, Event]]
    ended: list[Ended] = []


class Purged(msgspec.Struct, frozen=True):
    """The event job-purge-inactive: job ids, and when each job ended (see `Ended.usec`)."""

    jobs: list[JobId]
    times: list[Usec]


def event_object(event: Event) -> EventObject:
    """An event as an entry tells it; many entries may share it."""
    # by hand, since every event passes here
    written: EventObject = {"timestamp": event.timestamp, "name": event.name}
    if event.context is not None:
        written["context"] = event.context
    return written


def annotated(jobid: int, now: float, annotations: dict[str, Any]) -> Entry:
    """Return an entry with all annotations of a job; its eventlog has them from alloc on."""
    context = {"annotations": annotations}
    return [jobid, -1, {"timestamp": now, "name": ANNOTATIONS, "context": context}]


def annotations_in(event: Event) -> dict[str, Any]:
    """The annotations that an entry with place -1 tells."""
    annotations: dict[str, Any] = (event.context or {}).get("annotations", {})
    return annotations


def named(entries: Iterable[Entry], names: Container[str]) -> list[Entry]:
    """The entries with one of `names`."""
    return [each for each in entries if each[2]["name"] in names]


def write(entries: Sequence[Entry], ended: Iterable[Ended] = ()) -> Payload:
    """The payload of a job-manager.events-journal response."""
    over = msgspec.to_builtins(list(ended))
    return {"events": entries, "ended": over} if over else {"events": entries}


FOLLOW: Final = codec(Follow)
BATCH: Final = codec(Batch)
PURGED: Final = codec(Purged)
