"""Views of the requests that users make about jobs, and that were not answered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from flux_trio.judge.checks.shapes import part
from flux_trio.judge.engine.selector import (
    EVENT,
    OWN,
    errnum,
    job_id,
    logged,
    name_of,
    payload,
    received,
    rpc,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Key, Place, Seen, view
from flux_trio.judge.views.jobs import LIFE, RUN, Life, context_of
from flux_trio.messages import Request, Response, topics
from flux_trio.messages.types import USERID_UNKNOWN
from flux_trio.trace import Record

SUBMIT, RAISE, URGENCY = topics.INGEST_SUBMIT, topics.JOB_RAISE, topics.JOB_URGENCY
UPDATE: Final = topics.JOB_UPDATE
DURATION: Final = "attributes.system.duration"
EVENTS: Final = {
    "exception": RAISE,
    "urgency": URGENCY,
    "jobspec-update": UPDATE,
    "resource-update": UPDATE,
}
"""The events that requests about a job ask for, with the topic of these requests."""
INGEST_DISCONNECT: Final = topics.disconnect_of(topics.JOB_INGEST)

LEFT: Final = view(
    "left",
    sent("request", INGEST_DISCONNECT),
    parts=lambda record, _seen: [(getattr(record.message, "sender", ""), None)],
    fold=lambda _had, _part, record, _seen: record.n,
    state=Place,
)
"""By peer, the last time that it has left job-ingest: nobody gets the answers to its requests."""


def is_void(asked: OpenRequest, seen: Seen) -> bool:
    """Whether an open submission is of a peer that has left."""
    return asked.jobid is None and asked.sent < (seen.at(LEFT, asked.sender) or 0)


class OpenRequest(NamedTuple):
    """A request that was not answered."""

    n: Place
    """The record at which it was received."""
    sent: Place
    """The record at which it was sent."""
    jobid: int | None
    """The job that gets an exception, an urgency or an update."""
    events: tuple[str, ...] = ()
    """The events of it that are not logged yet."""
    sender: str = ""
    userid: int = USERID_UNKNOWN
    urgency: Any = None
    flags: Any = None
    is_of_guest: bool = False

    @property
    def is_done(self) -> bool:
        """Whether all that was asked for is logged."""
        return not self.events


def _asked(record: Record, seen: Seen) -> Iterable[tuple[Key, None]]:
    if record.kind == EVENT:
        topic = EVENTS[str(name_of(record))]
        return [(key, None) for key, _ in asked_for(seen, topic, job_id(record))]
    found = rpc(record)
    if found is None:
        return []
    asked = seen.at(ASKED, found)
    is_taken = isinstance(record.message, Response) and not errnum(record)
    if topic_of(record) != SUBMIT or asked is None or not is_taken:
        return [(found, None)]
    # job-ingest takes submissions in order: those before it that nobody waits for are over
    over = [key for key, each in seen.all(ASKED).items() if is_void(each, seen)]
    return [(found, None), *((key, None) for key in over if seen.all(ASKED)[key].n < asked.n)]


def _fold_asked(
    had: OpenRequest | None, _part: None, record: Record, seen: Seen
) -> OpenRequest | None:
    if record.kind == EVENT:
        name = name_of(record)
        left = () if had is None else tuple([each for each in had.events if each != name])
        return None if had is None else had._replace(events=left)
    if not isinstance(record.message, Request):
        return None
    found, jobid = record.message, None if topic_of(record) == SUBMIT else job_id(record)
    urgency, flags = payload(record).get("urgency"), payload(record).get("flags")
    whose = found.sender, found.userid
    events = tuple([name for name, topic in EVENTS.items() if topic == topic_of(record)])
    if topic_of(record) == UPDATE and not _moves_the_end(record, jobid, seen):
        events = events[:1]
    sent_at = record.ref or record.n
    return OpenRequest(record.n, sent_at, jobid, events, *whose, urgency, flags, found.is_of_guest)


def _moves_the_end(record: Record, jobid: int | None, seen: Seen) -> bool:
    """Whether an update changes the expiration of a job: it is of the duration, and it runs."""
    life: Life | None = seen.at(LIFE, jobid)
    is_running = life is not None and life.state == RUN
    return is_running and DURATION in part(payload(record), "updates", dict)


ASKED: Final = view(
    "asked for",
    received("request", SUBMIT, *dict.fromkeys(EVENTS.values())),
    sent("response", SUBMIT, *dict.fromkeys(EVENTS.values())),
    while_live(OWN, logged(*EVENTS)),
    parts=_asked,
    fold=_fold_asked,
    reads=(LEFT, LIFE),
)
"""The open requests (`OpenRequest`), by RPC."""


def asked_for(seen: Seen, topic: str, jobid: int | None) -> list[tuple[Any, OpenRequest]]:
    """Return the open requests of a topic about a job, each with its RPC."""
    found: Iterable[tuple[Any, OpenRequest]] = seen.all(ASKED).items()
    return [(key, each) for key, each in found if key[1] == topic and each.jobid == jobid]


URGENCIES: Final = view(
    "urgencies",
    logged("submit", "urgency", "clean"),
    key=job_id,
    fold=lambda _had, _part, record, _seen: context_of(record).get("urgency"),
    state=Any,
)
"""The urgency of each active job by its eventlog, by job id."""
