"""Views of RFC 28: what a peer has acquired, as sent and as received; what jobs hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from flux_trio.formats import Idset
from flux_trio.judge.checks.shapes import idset_of
from flux_trio.judge.engine.selector import (
    EVENT,
    LOOKUP_TOPICS,
    RECV,
    SEND,
    errnum,
    logged,
    message,
    name_of,
    noted,
    payload,
    received,
    sent,
    topic_of,
)
from flux_trio.judge.engine.view import Live, Place, Seen, View, view
from flux_trio.judge.views.acquiring import NONE, change_of
from flux_trio.judge.views.calls import ENDS, client_of
from flux_trio.judge.views.resource_sets import (
    ALLOCATING,
    LOOKUPS,
    Piece,
    SeenR,
    allocated,
    carried,
    committed,
    execution,
    found_in,
    is_part,
    number_of,
    pieces_of,
    properties_of,
    resources_in,
    targets_of,
)
from flux_trio.judge.views.scheduling import CANCELS, DENIES, SUCCESS
from flux_trio.judge.views.traits import BY_SCHEDULER
from flux_trio.messages import Request, Response, topics
from flux_trio.messages.types import STREAMING
from flux_trio.trace import Kind, Record

RESOURCE_DISCONNECT: Final = topics.disconnect_of(topics.RESOURCE)


class Acquiring(NamedTuple):
    """A request resource.acquire of a peer."""

    n: Place
    matchtag: int
    """The matchtag of the request; 0 in a trace without headers."""
    group: str
    is_streaming: bool


class Acquired(Live, frozen=True, gc=False):
    """The targets that a peer has acquired, by one or more resource.acquire. Places of records are
    0 for what has not happened.
    """

    first: Acquiring
    more: tuple[Acquiring, ...] = ()
    """The other acquires of the peer that were granted, beside `first`."""
    asked: tuple[Acquiring, ...] = ()
    """The acquires of the peer that were not answered; `first` is not among them."""
    granted: Idset = NONE
    """The targets that the peer has: those of the first response and of later grows, without those
    that were shrunk."""
    online: Idset = NONE
    taken: Idset = NONE
    """The targets that were shrunk and not grown again."""
    unreleased: Idset = NONE
    """Those of the `taken` targets that the peer has not released."""
    pieces: tuple[Piece, ...] = ()
    """The entries of R_lite of all that was ever granted or grown."""
    properties: tuple[tuple[str, Idset], ...] = ()
    expiration: float = 0
    """The expiration in the last grow, in seconds since the Unix epoch; 0 if there was no grow."""
    traits: frozenset[str] = frozenset()
    """What was unusual about the R of the first grow (`traits_of`); empty when the stream has
    ended."""
    grown: Place = 0
    """The record of the first grow."""
    shrunk: Place = 0
    """The record of the last shrink."""
    changed: Place = 0
    """The record of the last response of any type."""
    lessened: Place = 0
    """The record of the last response after which fewer targets of the peer were available, or
    other ones."""
    failed: Place = 0
    """The record of an error response to resource.acquire."""
    unreadable: Place = 0
    """The record of a response whose payload is not an object."""
    release_failed: Place = 0
    """The record of an error response to resource.release."""
    said_hello: Place = 0
    gone: Place = 0
    """The record at which the disconnect of the peer was sent."""

    @property
    def n(self) -> Place:
        """Return the record of the peer's first acquire."""
        return self.first.n

    @property
    def is_streaming(self) -> bool:
        """Return whether the peer's first acquire asks for a stream."""
        return self.first.is_streaming

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the groups that the peer has acquired, or has asked for."""
        return tuple([each.group for each in (self.first, *self.more, *self.asked)])

    @property
    def offline(self) -> Idset:
        """The targets that the peer has and that are not available."""
        return self.granted - self.online

    @property
    def missing(self) -> Idset:
        """The targets that the peer must not allocate: those that are offline, and those that were
        shrunk.
        """
        return self.offline | self.taken


def _is_valid(grow: Mapping[str, Any]) -> bool:
    """Whether there is nothing about a grow for which it may be refused.

    In the current edition it has no type, and `up` in place of two required keys.
    """
    is_classic = grow.get("type") == "grow"
    idsets = [grow.get("online"), grow.get("offline")] if is_classic else [grow.get("up", "")]
    is_readable = None not in map(idset_of, idsets)
    return is_readable and resources_in(grow.get("resources")) is not None


def traits_of(r: Any) -> frozenset[str]:
    """Return what is unusual about an R: RFC 20 allows it, but a consumer may fail on it."""
    found = execution(r)
    pieces, nodelist = pieces_of(r), found.get("nodelist")
    named = list(properties_of(r).items())
    lowest = [piece.ranks.first() for piece in pieces if piece.ranks]
    scheduling = r.get("scheduling") if isinstance(r, dict) else None
    is_list = isinstance(nodelist, list)
    tests = {
        "out of order": lowest != sorted(lowest),
        "lengths differ": is_list and len(nodelist or ()) != len(pieces),
        "no gpu": not any(piece.gpus for piece in pieces),
        "overlap": any(a & b for i, (_, a) in enumerate(named) for _, b in named[:i]),
        "suffixed and bare": any(
            name.partition("@")[0] in dict(named) for name, _ in named if "@" in name
        ),
        "starttime 0": "starttime" in found and not number_of(r, "starttime"),
        "no starttime": "starttime" not in found,
        "scheduling": isinstance(scheduling, dict),
        "scheduling keys": isinstance(scheduling, dict) and bool(set(scheduling) - {"writer"}),
    }
    return frozenset(trait for trait, holds in tests.items() if holds)


def _client(record: Record, seen: Seen) -> Iterable[tuple[str, None]]:
    """The peer that acquires: who sent the request, or gets the response; a module that ended.

    Hello may be said by another module of the scheduler.
    """
    if record.message is None:
        content = payload(record)
        return [(str(content.get("module")), None)] if content.get("what") in ENDS else []
    if topic_of(record) == topics.SCHED_HELLO:
        return [(replace(seen.facts, scheduler=record.party).acquirer, None)]
    return [(client_of(record) or record.party, None)]


def _fold(had: Acquired | None, _part: None, record: Record, _seen: Seen) -> Acquired | None:
    if record.message is None:
        return None
    found = message(record)
    if isinstance(found, Request):
        return _after_request(had, found, record)
    if had is None:
        return None
    if topic_of(record) == topics.RESOURCE_RELEASE:
        return had.but(release_failed=record.n) if errnum(record) else had
    answered = _answered_later(had, found)
    if answered is not None:
        had = had.but(asked=tuple([each for each in had.asked if each is not answered]))
        if errnum(record):
            return had  # what it has acquired before it keeps
        is_anew = change_of(payload(record)).is_whole
        had = Acquired(answered) if is_anew else had.but(more=(*had.more, answered))
    if errnum(record):
        return had.but(failed=record.n, changed=record.n)
    if isinstance(found, Response) and not isinstance(found.payload, dict):
        return had.but(unreadable=record.n, changed=record.n)
    had = _after_response(had, payload(record), record.n)
    if isinstance(found, Response) and found.matchtag and found.ends_rpc:
        # it has headers and no streaming flag: whoever got it may leave
        return had.but(traits=frozenset())
    return had


def _answered_later(had: Acquired, response: Any) -> Acquiring | None:
    """Return the acquire that a response answers for the first time, unless it is the peer's first.

    Without a matchtag, it is the oldest after the first, once the first was answered.
    """
    if response.matchtag:
        return next((each for each in had.asked if each.matchtag == response.matchtag), None)
    return had.asked[0] if had.asked and had.grown else None


def is_first_response(had: Acquired, response: Any) -> bool:
    """Return whether a response is the first to an acquire of a peer."""
    return not had.grown or _answered_later(had, response) is not None


def _after_request(had: Acquired | None, request: Request, record: Record) -> Acquired | None:
    match request.topic:
        case topics.RESOURCE_ACQUIRE if not request.is_of_guest:
            group = str(payload(record).get("group", ""))
            is_streaming = bool(request.flags & STREAMING)
            acquiring = Acquiring(record.n, request.matchtag, group, is_streaming)
            if had is None or had.gone or had.failed:
                return Acquired(acquiring)
            return had.but(asked=(*had.asked, acquiring))
        case topics.RESOURCE_RELEASE if had is not None:
            released = idset_of(payload(record).get("targets")) or NONE
            return had.but(unreleased=had.unreleased - released)
        case topics.SCHED_HELLO if had is not None:
            return had.but(said_hello=record.n)
        case topic if topic == RESOURCE_DISCONNECT and had is not None:
            if record.kind == RECV:
                return None if had.gone or had.n < record.ref else had
            return had.but(gone=record.n)
    return had


def _after_response(had: Acquired, content: dict[str, Any], n: int) -> Acquired:
    change, missing = change_of(content), had.missing
    r = change.resources
    if r is not None:
        new = targets_of(r) or NONE
        had = had.but(
            granted=had.granted | new,
            taken=had.taken - new,
            pieces=had.pieces + pieces_of(r),
            properties=_with_properties(had.properties, properties_of(r), new),
            expiration=number_of(r, "expiration"),
            traits=had.traits if had.grown or not _is_valid(content) else traits_of(r),
            grown=had.grown or n,
        )
    if shrunk := change.shrunk:
        had = had.but(
            granted=had.granted - shrunk,
            taken=had.taken | shrunk,
            unreleased=had.unreleased | shrunk,
            shrunk=n,
        )
    if change.expiration is not None:
        had = had.but(expiration=change.expiration)
    online = (had.online | (change.up & had.granted)) - change.down - change.shrunk
    now = had.but(online=online, changed=n)
    return now.but(lessened=n) if now.missing - missing else now


def _with_properties(
    had: tuple[tuple[str, Idset], ...], now: dict[str, Idset], targets: Idset
) -> tuple[tuple[str, Idset], ...]:
    """Return the properties after what is told of these targets."""
    kept = {name: left for name, ranks in had if (left := ranks - targets)}
    names = sorted(kept.keys() | now.keys())
    return tuple([(name, kept.get(name, NONE) | now.get(name, NONE)) for name in names])


AS_RECEIVED: Final[View] = view(
    "acquired, as received",
    sent("request", topics.RESOURCE_ACQUIRE, topics.RESOURCE_RELEASE, topics.SCHED_HELLO),
    sent("request", RESOURCE_DISCONNECT),
    received("request", RESOURCE_DISCONNECT),
    noted(Kind.MODULE),
    received("response", topics.RESOURCE_ACQUIRE, topics.RESOURCE_RELEASE),
    parts=_client,
    fold=_fold,
)
"""What each peer has acquired (`Acquired`), by its name, as the peer sees it: by what it has sent
and received."""


def _client_told(record: Record, seen: Seen) -> Iterable[tuple[str, None]]:
    """As `_client`; and every peer, when the resource service itself ends: its streams are over."""
    if record.message is None and payload(record).get("module") == topics.RESOURCE:
        is_end = payload(record).get("what") in ENDS
        return [(peer, None) for peer in seen.all(AS_SENT)] if is_end else []
    return _client(record, seen)


def _fold_told(had: Acquired | None, part: None, record: Record, seen: Seen) -> Acquired | None:
    """As `_fold`; a disconnect comes after all that its peer has sent, and before its successor."""
    if getattr(record.message, "topic", "") == RESOURCE_DISCONNECT:
        return None
    return _fold(had, part, record, seen)


AS_SENT: Final[View] = view(
    "acquired, as sent",
    received("request", topics.RESOURCE_ACQUIRE, topics.RESOURCE_RELEASE, RESOURCE_DISCONNECT),
    sent("response", topics.RESOURCE_ACQUIRE),
    noted(Kind.MODULE),
    parts=_client_told,
    fold=_fold_told,
)
"""What each peer has acquired (`Acquired`), by its name, as the resource service sees it: by what
the service has received and sent."""


def as_received(seen: Seen, peer: str) -> Acquired | None:
    """Return what a peer has acquired, as the peer sees it; None if it is not there any more.

    For the scheduler another of its modules may acquire.
    """
    if peer == seen.facts.scheduler:
        peer = seen.facts.acquirer
    had: Acquired | None = seen.states[AS_RECEIVED].get(peer)
    return None if had is None or had.gone else had


def knew_change(seen: Seen, peer: str, n: int) -> bool:
    """Whether a scheduler must have handled the response to resource.acquire at record `n`.

    What its module for resources has handled, its other module may not have learned yet.
    """
    return seen.facts.acquirer in ("", peer) and seen.knew(peer, n)


def surely_took_change(seen: Seen, peer: str, n: int) -> bool:
    """The same, or whether it took the response a second ago."""
    return (seen.is_old(n) and seen.takes_at_once(peer)) or knew_change(seen, peer, n)


class Held(Live, frozen=True, gc=False):
    """The resources that a job holds, as the scheduler sees it."""

    n: Place
    """The record at which its R was written, or sent in a response to hello."""
    targets: Idset
    is_logged: bool = False
    """Whether the alloc event has followed."""
    is_freed_late: bool = False
    """Whether its SUCCESS had R, as in the current edition, where the free comes after the end of
    the job."""


_SCHED_DISCONNECT: Final = topics.disconnect_of(topics.SCHED)


def _void(is_end: bool, seen: Seen) -> list[tuple[int, Any]]:
    """The grants that no eventlog tells of, when scheduler or job manager has ended."""
    held = seen.all(HELD) if is_end else {}
    return [(jobid, None) for jobid, each in held.items() if not each.is_logged]


def _holders(record: Record, seen: Seen) -> Iterable[tuple[int, Any]]:
    match topic_of(record):
        case topics.JOB_MANAGER_DISCONNECT:
            return _void(getattr(record.message, "sender", "") == seen.facts.scheduler, seen)
        case topic if topic == _SCHED_DISCONNECT:
            return _void(getattr(record.message, "sender", "") == seen.facts.manager, seen)
        case topics.SCHED_HELLO:  # of the next one, if both have ended and nobody heard of it
            return _void(True, seen)
        case topic if topic in topics.COMMITS:
            return list(committed(record))
        case topics.SCHED_ALLOC if payload(record).get("type") == SUCCESS:
            return [(r.jobid, r) for r in allocated(record) if r.jobid is not None]
        case topic if topic in topics.LOOKUPS:
            return [(r.jobid, r) for r in found_in(record, seen) if r.jobid is not None]
    found = payload(record).get("id")
    return [(found, None)] if type(found) is int else []


def _fold_held(had: Held | None, r: SeenR | None, record: Record, _seen: Seen) -> Held | None:
    if record.kind == SEND and r is None:
        return had if had is not None and had.is_logged else None
    if record.kind == EVENT and had is not None:
        if name_of(record) == "alloc":
            return had.but(is_logged=True)
        return had if had.is_freed_late else None
    if r is None:
        freed = targets_of(carried(record)) if is_part(record) else None
        return None if had is None or freed is None else had.but(targets=had.targets - freed)
    if topic_of(record) in LOOKUP_TOPICS:  # after hello, so that the job holds it
        return Held(record.n, targets_of(r.value) or NONE, True) if had is None else had
    is_current = topic_of(record) == topics.SCHED_ALLOC
    return Held(record.n, targets_of(r.value) or NONE, is_freed_late=is_current)


HELD: Final = view(
    "held",
    ALLOCATING,
    DENIES,
    CANCELS,
    received("response", *LOOKUP_TOPICS, mark=BY_SCHEDULER),
    received("request", topics.SCHED_FREE),
    received("request", _SCHED_DISCONNECT),
    sent("request", topics.JOB_MANAGER_DISCONNECT, topics.SCHED_HELLO),
    logged("alloc", "clean"),
    parts=_holders,
    fold=_fold_held,
    reads=(LOOKUPS,),
)
"""What each job holds (`Held`), by job id: from the commit of its R, or the SUCCESS that has it,
until the scheduler receives sched.free.

A grant whose alloc event is not logged is void when the scheduler denies or cancels the request
after all, when the scheduler leaves, when it learns of the job manager's end, and when it says
hello.
"""
