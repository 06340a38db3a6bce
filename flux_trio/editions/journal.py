"""What the job manager tells the services that follow jobs: events, ends, purges.

`job-manager.journal` and the event job-purge-inactive are our own: whole turns, for services that
follow all jobs. `job-manager.events-journal` is flux-core's: one job's events a response, with what
has been so far. They are the same in all editions.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from flux_trio.editions.codec import Codec, as_payload, codec
from flux_trio.formats import Event
from flux_trio.formats.meanings import JobId, JournalEntry, Usec
from flux_trio.messages import Errno, FluxError, Payload

ANNOTATIONS: Final = "annotations"
"""The name of an entry that is no event of an eventlog: it tells all annotations of a job."""

Entry: TypeAlias = JournalEntry
"""Job id, place, event. The place counts the events of the job from 0; it is -1 for annotations."""

BACKLOG_IS_OVER: Final = -1

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
    """The job-manager.journal request: which events are wanted."""

    allow: dict[str, int] | None = None  # names of events that are wanted, as keys; none: all


class Batch(msgspec.Struct, frozen=True):
    """A job-manager.journal response; `ended` are the jobs that its events end."""

    events: list[tuple[JobId, int, Event]]
    ended: list[Ended] = []


class FollowEvents(msgspec.Struct, frozen=True):
    """The job-manager.events-journal request: which events are wanted."""

    allow: Any = None  # names of events that are wanted, as keys; none: all
    deny: Any = None  # names of events that are not wanted, as keys
    full: bool = False  # jobs that have ended are told, too

    def named(self) -> tuple[frozenset[str] | None, frozenset[str]]:
        """Return the names that are wanted, None for all, and those that are not.

        Raises FluxError(EPROTO).
        """
        for key, value in (("allow", self.allow), ("deny", self.deny)):
            if value is not None and not isinstance(value, dict):
                text = f"{key} should be an object with names of events as its keys"
                raise FluxError(Errno.EPROTO, text)
        allowed = None if self.allow is None else frozenset(self.allow)
        return allowed, frozenset(self.deny or ())


class JobEvents(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job-manager.events-journal response; the jobspec and R as they are then, without secrets.

    `id` is BACKLOG_IS_OVER, without events, once all has been told that was before.
    """

    id: int
    events: list[Event]
    jobspec: dict[str, Any] | None = None  # without the environment
    R: dict[str, Any] | None = None  # without the scheduler's own key


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


def annotations_event(now: float, annotations: dict[str, Any]) -> Event:
    """Return all annotations of a job as an event; its eventlog has them from alloc on."""
    return Event(now, ANNOTATIONS, {"annotations": annotations})


def annotated(jobid: int, now: float, annotations: dict[str, Any]) -> Entry:
    """Return an entry with all annotations of a job."""
    return [jobid, -1, event_object(annotations_event(now, annotations))]


def annotations_in(event: Event) -> dict[str, Any]:
    """The annotations that an entry with place -1 tells."""
    annotations: dict[str, Any] = (event.context or {}).get("annotations", {})
    return annotations


def named(entries: Iterable[Entry], names: Container[str]) -> list[Entry]:
    """The entries with one of `names`."""
    return [each for each in entries if each[2]["name"] in names]


def write(entries: Sequence[Entry], ended: Iterable[Ended] = ()) -> Payload:
    """The payload of a job-manager.journal response."""
    over = msgspec.to_builtins(list(ended))
    return {"events": entries, "ended": over} if over else {"events": entries}


FOLLOW: Final = codec(Follow)
FOLLOW_EVENTS: Final = codec(FollowEvents)
JOB_EVENTS: Final[Codec[JobEvents]] = Codec(as_payload, codec(JobEvents).read)
BATCH: Final = codec(Batch)
PURGED: Final = codec(Purged)
