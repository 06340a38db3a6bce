"""RFC 28, the acquire RPC itself: its clients, its errors, and its end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    BROKER,
    ERROR,
    OWN,
    errnum,
    job_id,
    logged,
    no_key,
    noted,
    payload,
    received,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Live, Place, Seen, view
from flux_trio.judge.views.acquiring import change_of
from flux_trio.judge.views.calls import ENDS, call_key
from flux_trio.judge.views.granting import ANSWERING, Answering
from flux_trio.judge.views.jobs import LIFE, is_fatal
from flux_trio.judge.views.raising import ANY_JOB, RAISED
from flux_trio.judge.views.resources import (
    AS_RECEIVED,
    HELD,
    RESOURCE_DISCONNECT,
    Acquired,
    as_received,
)
from flux_trio.judge.views.scheduling import SUCCESSES
from flux_trio.messages import Errno, Response, topics
from flux_trio.messages.types import STREAMING
from flux_trio.trace import Kind, Record

RULES: Final = Rules()

TAKEN_UP: Final = received("request", topics.RESOURCE_ACQUIRE)
ANSWERED: Final = sent("response", topics.RESOURCE_ACQUIRE)


class Stream(Live, frozen=True, gc=False):
    """A resource.acquire that the resource service has received and not refused."""

    n: Place
    asked: Place
    """The record at which it was sent."""
    group: Any
    is_streaming: bool
    is_valid: bool
    service: str
    """The party that received it."""
    served: Place = 0
    """The record of its first response that is no error."""


def _key(record: Record) -> tuple[str, int]:
    client, matchtag = call_key(record)
    return (client or record.peer, matchtag)


def _streams(record: Record, seen: Seen) -> Iterable[tuple[Any, None]]:
    if record.message is None:  # a client that left before has no answer that would end its stream
        gone = payload(record).get("module") if payload(record).get("what") in ENDS else None
        return [(key, None) for key, each in seen.all(STREAMS).items() if each.service == gone]
    client, _ = _key(record)
    if topic_of(record) == RESOURCE_DISCONNECT:
        return [(key, None) for key in seen.all(STREAMS) if key[0] == client]
    return [(_key(record), None)]


def _fold(stream: Stream | None, _part: None, record: Record, _seen: Seen) -> Stream | None:
    found = record.message
    if found is None:
        return None
    if isinstance(found, Response):
        if stream is None or found.errnum:
            return None
        return stream.but(served=stream.served or record.n)
    if topic_of(record) == RESOURCE_DISCONNECT:
        return None
    group = payload(record).get("group")
    is_streaming = bool(getattr(found, "flags", 0) & STREAMING)
    asked = record.ref or record.n
    is_valid = isinstance(group, str)
    return Stream(record.n, asked, str(group), is_streaming, is_valid, record.party)


STREAMS: Final = view(
    "acquire streams",
    TAKEN_UP,
    received("request", RESOURCE_DISCONNECT),
    ANSWERED,
    while_live(OWN, noted(Kind.MODULE)),
    parts=_streams,
    fold=_fold,
)
"""The open acquires (`Stream`), by client and matchtag."""


def _others(record: Record, seen: Seen) -> list[Stream]:
    """Return the open streams other than that of this response.

    One that was not served yet counts, too: of two that came before the service could answer, it
    may refuse the second before it serves the first.
    """
    key = _key(record)
    return [each for other, each in seen.all(STREAMS).items() if other != key and each.is_valid]


def _client_left(record: Record, seen: Seen) -> Iterable[tuple[Any, None]]:
    """Return the client; the disconnect of one that has not acquired is no end of a stream."""
    client, _ = _key(record)
    if topic_of(record) == RESOURCE_DISCONNECT and all(
        key[0] != client for key in seen.all(STREAMS)
    ):
        return []
    return [(client, None)]


def _fold_left(_n: int | None, _part: None, record: Record, _seen: Seen) -> Place | None:
    return record.n if topic_of(record) == RESOURCE_DISCONNECT else None


LEFT: Final = view(
    "left",
    received("request", RESOURCE_DISCONNECT),
    TAKEN_UP,
    parts=_client_left,
    fold=_fold_left,
    reads=(STREAMS,),
)
"""By client that had acquired resources: the record of its disconnect, until it acquires again."""


def stream_of(record: Record, seen: Seen) -> Stream | None:
    found: Stream | None = seen.at(STREAMS, _key(record))
    return found


def _had_holder(record: Record, stream: Stream, seen: Seen) -> bool:
    """Whether a group may have had a holder when the service looked at an acquire.

    In one turn it may take up the acquire, then the holder's disconnect, and answer after both.
    """
    left = seen.all(LEFT).values()
    return any(n > stream.n and not seen.knew(record.party, n) for n in left)


@RULES.judge("28.background.1", ANSWERED, views=[STREAMS], needs_headers=True)
def a_group_has_one_holder(record: Record, seen: Seen) -> Finding:
    stream = stream_of(record, seen)
    if stream is None or stream.served:
        return None
    same = [other for other in _others(record, seen) if other.group == stream.group]
    if errnum(record):
        return bool(same)
    served = [other.served for other in same if other.served]
    if not served:
        return None
    return Broken(f"group {stream.group} is given to two at once", (served[0], stream.n))


@RULES.judge("28.impl.2", ANSWERED, views=[STREAMS, LEFT], needs_headers=True)
def several_groups_may_be_held(record: Record, seen: Seen) -> Finding:
    stream = stream_of(record, seen)
    if stream is None or stream.served:
        return None
    others = _others(record, seen)
    if any(other.group == stream.group for other in others) or not others:
        return None
    if errnum(record) == Errno.EBUSY and not _had_holder(record, stream, seen):
        text = f"group {stream.group} was refused as busy, but only others are acquired"
        return Broken(text, (stream.n, others[0].n), party=record.party)
    return not errnum(record)


@RULES.judge("28.disconnect.3", ANSWERED, views=[STREAMS, LEFT], needs_headers=True)
def a_group_that_was_left_can_be_acquired(record: Record, seen: Seen) -> Finding:
    stream = stream_of(record, seen)
    if stream is None or stream.served or _others(record, seen):
        return None
    if errnum(record) == Errno.EBUSY and not _had_holder(record, stream, seen):
        text = f"group {stream.group} was refused as busy, but nobody has acquired any"
        return Broken(text, (stream.n,))
    return not errnum(record)


@RULES.judge("28.background.6", ANSWERED, views=[STREAMS], needs_headers=True)
def acquire_is_streaming(record: Record, seen: Seen) -> Finding:
    stream = stream_of(record, seen)
    if stream is None or errnum(record):
        return None
    if not stream.is_streaming:
        text = "resource.acquire without the streaming flag was served; expected EPROTO"
        return Broken(text, (stream.n,))
    ends = isinstance(record.message, Response) and record.message.ends_rpc
    return Broken("resource.acquire was answered once and for all") if ends else True


def _ignored(seen: Seen) -> list[Broken]:
    return [
        Broken("resource.acquire is faulty and was not answered", (each.n,))
        for each in seen.all(STREAMS).values()
        if not each.is_valid and not each.served
    ]


def _unserved(seen: Seen) -> list[Broken]:
    return [
        Broken(f"{client} has acquired group {each.group} and was sent nothing", (each.n,))
        for (client, _), each in seen.all(STREAMS).items()
        if each.is_valid and not each.served and _waits(client, each, seen)
    ]


def _waits(client: str, stream: Stream, seen: Seen) -> bool:
    """Whether the client is there; the service may end before it takes up that the client left."""
    own: Acquired | None = seen.at(AS_RECEIVED, client)
    return own is not None and not own.gone and own.n <= stream.asked


@RULES.judge("28.criteria.1", ANSWERED, views=[STREAMS, AS_RECEIVED], debts=_unserved)
def resources_are_told(record: Record, _seen: Seen) -> Finding:
    return change_of(payload(record)).resources is not None


@RULES.judge("28.error.3", ANSWERED, views=[STREAMS], debts=_ignored, needs_headers=True)
def a_faulty_acquire_is_refused(record: Record, seen: Seen) -> Finding:
    stream = stream_of(record, seen)
    if stream is None or stream.is_valid:
        return None
    return bool(errnum(record)) or Broken(
        "resource.acquire has no group and was served; expected an error", (stream.n,)
    )


@RULES.judge("28.acquire.3", ANSWERED, views=[STREAMS], needs_headers=True)
def the_example_is_accepted(record: Record, seen: Seen) -> Finding:
    stream = stream_of(record, seen)
    if stream is None or stream.group != "default" or not stream.is_streaming:
        return None
    if errnum(record) in (Errno.EPROTO, Errno.EINVAL) and not stream.served:
        text = f"a well-formed resource.acquire got error {errnum(record)}"
        return Broken(text, (stream.n,), party=record.party)
    return not errnum(record)


# --- errors end the scheduler


def _exits(clause: str, topic: str, failed: str) -> None:
    """`clause`: a scheduler that got an error to `topic` answers and asks nothing any more."""

    @RULES.by(
        ANSWERING,
        clause,
        sent("response", topics.SCHED_ALLOC, topics.SCHED_FREE),
        sent("request", topics.SCHED_HELLO, topics.SCHED_READY, RESOURCE_DISCONNECT),
        views=[AS_RECEIVED],
    )
    def judge(answering: Answering | None, record: Record, seen: Seen) -> Finding:
        if answering is not None and not answering.is_without:
            return None
        had = seen.at(AS_RECEIVED, record.party)
        place = getattr(had, failed, 0)
        if not place or had.gone:
            return None
        if topic_of(record) == RESOURCE_DISCONNECT:
            return True
        if not seen.knew(record.party, place):
            return None
        what = f"{record.party} got an error to {topic} and still sends {topic_of(record)}"
        return Broken(what, (place,))


_exits("28.error.2", topics.RESOURCE_ACQUIRE, "failed")
_exits("28.release.10", topics.RESOURCE_RELEASE, "release_failed")


# --- disconnect

REFUSED: Final = view(
    "refused clients",
    sent("response", topics.RESOURCE_ACQUIRE, mark=ERROR),
    sent("request", topics.RESOURCE_ACQUIRE),
    parts=lambda record, _seen: [(record.peer if errnum(record) else record.party, None)],
    fold=lambda _old, _part, record, _seen: record.n if errnum(record) else None,
    state=Place,
)
"""By client: the record of the error that ended its stream; the client may not have received it
yet."""


@RULES.judge("28.disconnect.1", noted(Kind.MODULE), views=[AS_RECEIVED, REFUSED])
def unloading_sends_disconnect(record: Record, seen: Seen) -> Finding:
    content = payload(record)
    had: Acquired | None = seen.at(AS_RECEIVED, content.get("module"))
    if had is None or content.get("what") not in ENDS or had.failed:
        return None
    if content.get("module") == topics.RESOURCE:
        return None  # it has asked itself, and nobody is left to be told
    if seen.at(REFUSED, content.get("module")):
        return None
    if had.gone:
        return True
    return Broken(f"{content['module']} is gone, and {RESOURCE_DISCONNECT} was not sent", (had.n,))


@RULES.judge("28.disconnect.2", ANSWERED, views=[LEFT])
def nothing_is_sent_to_one_who_has_left(record: Record, seen: Seen) -> Finding:
    left = seen.at(LEFT, _key(record)[0])
    if left is None:
        return True
    if record.party == BROKER or errnum(record) == Errno.ENOSYS:
        return None  # of a resource service that is gone, or has not taken up the request
    if not seen.knew(record.party, left):
        return None
    return Broken(f"resource.acquire was answered after {_key(record)[0]} had left", (left,))


HOOKED: Final = view(
    "hooked",
    while_live(LEFT, noted(Kind.HOOK)),
    key=no_key,
    fold=lambda _n, _part, record, _seen: record.n,
    state=Place,
)
"""A single state: the record at which a plugin was last called while a client was away."""


@RULES.judge("28.disconnect.4", logged("exception"), views=[LIFE, RAISED, LEFT, HOOKED])
def running_jobs_are_unaffected(record: Record, seen: Seen) -> Finding:
    """While the scheduler is away, no exception of a running job is raised that no user, no service
    and no plugin has asked for.
    """
    life = seen.at(LIFE, job_id(record))
    if life is None or not life.held or not is_fatal(record):
        return None
    if seen.facts.scheduler or not seen.all(LEFT):
        return None
    reasons = [n for each in (job_id(record), ANY_JOB) if (n := seen.at(RAISED, each))]
    asked, left = max(reasons, default=0), max(seen.all(LEFT).values())
    if asked > left or (seen.at(HOOKED) or 0) > left:
        return bool(asked > left)
    waiting = [n for _, n in seen.requests_of(record.party)]
    if asked > life.fatal or any(n in waiting for n in reasons):
        return None  # the reason may have come just before the scheduler left
    return Broken(
        f"job {job_id(record)} got an exception that nobody raised, when the scheduler had left",
        (left,),
    )


@RULES.judge("28.disconnect.5", SUCCESSES, views=[AS_RECEIVED, HELD])
def hello_comes_before_new_allocations(record: Record, seen: Seen) -> Finding:
    had = as_received(seen, record.party)
    if payload(record).get("type") != 0 or had is None:
        return None
    if had.said_hello:
        return True
    text = f"{record.party} has acquired and allocates, but has not said hello since"
    return Broken(text, (had.n,))
