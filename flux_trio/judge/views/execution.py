"""Views of RFC 32: the execution service, the state of each start request, events due in logs.

A start request that was open when the execution service or the job manager was lost is void:
compare its record number with `ExecLink.lost`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from flux_trio.judge.checks.shapes import BOOLEAN, INTEGER, STRING, between, idset_of
from flux_trio.judge.engine.packed import Packing
from flux_trio.judge.engine.selector import (
    ERROR,
    MODULE,
    SEND,
    errnum,
    job_id,
    message,
    no_key,
    noted,
    once,
    payload,
    received,
    sent,
)
from flux_trio.judge.engine.view import Live, Mark, Place, Seen, Trait, view
from flux_trio.judge.views.eventlogs import RESOURCES, Resources
from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Kind, Record

START: Final = "<exec>.start"
SEVERITY: Final = between(0, 7)
ALL: Final = -1  # all ranks, as a bit set
EXEC_DISCONNECT: Final = f"<exec>.{topics.DISCONNECT}"

# --- the link


class Hello(NamedTuple):
    """An exec-hello that the job manager has received and not answered."""

    n: Place
    peer: str
    busy: int
    """The id of a job that had an outstanding start request at that time; 0 if there was none."""
    is_readable: bool
    """Whether it names a service, and is not a guest's; the job manager may refuse it otherwise."""
    is_roleless: bool
    """Whether the trace does not tell whose it is."""


class ExecLink(Live, frozen=True, gc=False):
    """The relation between the job manager and the execution service: for each kind of event the
    record at which it happened last; 0 if it never did.
    """

    accepted: Place = 0
    """The job manager answered exec-hello with success."""
    lost: Place = 0
    """The job manager received the service's disconnect or an error in answer to start, accepted
    the same service again, or ended itself."""
    doubtful: Place = 0
    """The job manager received an answer to start that makes no sense (`is_senseless`). The earlier
    starts are over then (readings: Exec override); a job manager may still log what else is
    said."""
    disconnected: Place = 0
    """The job manager received the disconnect of the service."""
    departed: str = ""
    """The name of the peer that has disconnected."""
    unanswered: Place = 0
    """A peer disconnected before its hello was answered: the job manager may have accepted it as
    its service, and the answer may have waited for a commit."""
    gone: Place = 0
    """The job manager itself has ended."""
    fatal: Place = 0
    """The job manager received an error in answer to start; 0 again after the next hello."""
    hellos: tuple[Hello, ...] = ()

    @property
    def is_up(self) -> bool:
        """Whether the job manager may send start requests."""
        return self.accepted > self.lost

    @property
    def ended(self) -> Place:
        """The record at which all start requests before it have ended."""
        return max(self.lost, self.doubtful)


NO_LINK: Final = ExecLink()


def _fold_link(link: ExecLink | None, _part: None, record: Record, seen: Seen) -> ExecLink:
    link = link or NO_LINK
    if record.kind == MODULE:
        is_end = seen.facts.is_manager_gone(record)
        return _without_manager(link, record) if is_end else link
    found = message(record)
    if isinstance(found, Response):
        if found.topic != topics.EXEC_HELLO:
            if found.errnum:
                return link.but(lost=record.n, fatal=record.n)
            return link.but(doubtful=record.n)
        hellos = tuple(hello for hello in link.hellos if hello is not answered_hello(link, found))
        if found.errnum:
            return link.but(hellos=hellos)
        hello = answered_hello(link, found)
        is_same = hello is not None and hello.peer == seen.facts.exec_peer
        lost = max(hello.n, link.lost) if hello is not None and is_same else link.lost
        return link.but(hellos=hellos, accepted=record.n, fatal=0, lost=lost)
    assert isinstance(found, Request)
    if found.topic == topics.EXEC_HELLO:
        is_readable = STRING.fits(payload(record).get("service")) and not found.is_of_guest
        hello = Hello(
            record.n,
            found.sender or record.peer,
            outstanding(seen),
            is_readable,
            not found.rolemask,
        )
        return link.but(hellos=(*link.hellos, hello))
    if found.topic == topics.JOB_MANAGER_DISCONNECT:
        # the answers to its hellos go nowhere, though the next one may have its name
        left = tuple(each for each in link.hellos if each.peer != found.sender)
        if len(left) < len(link.hellos):
            link = link.but(hellos=left, unanswered=record.n)
        if found.sender != seen.facts.exec_peer:
            return link
        return link.but(lost=record.n, disconnected=record.n, departed=found.sender)
    is_gone = found.sender == seen.facts.manager
    return _without_manager(link, record) if is_gone else link


def _without_manager(link: ExecLink, record: Record) -> ExecLink:
    return link.but(lost=record.n, gone=record.n, hellos=())


def answered_hello(link: ExecLink, response: Response) -> Hello | None:
    to = response.routes[0] if response.routes else ""
    return next((hello for hello in link.hellos if to in ("", hello.peer)), None)


# --- the starts


class Start(Live, frozen=True, gc=False):
    """The latest start request of a job. The fields with places are record numbers, 0 for what has
    not happened.
    """

    sent: Place
    taken: Place = 0
    """The record at which the execution service received the request."""
    taker: str = ""
    """The party that received it; "" if that is not known."""
    reattach: bool = False
    said: tuple[tuple[str, Place], ...] = ()
    """The responses that the service has sent, each with its record: its type, or "fatal" for a
    fatal exception and "final" for the final release."""
    received: tuple[tuple[str, Place], ...] = ()
    """The responses that the job manager has received, in the form of `said`."""
    released: int = 0
    """The ranks that the service has released, as a bit set."""
    earlier: int = 0
    """The ranks that were released in answer to earlier start requests of the job, as a bit set."""
    misfit: Place = 0
    """The record of a release whose ranks are not ranks of the job: the job manager may then take
    the service for lost (readings: Release ranks)."""

    def place(self, what: str, *, received: bool = False) -> int:
        """Return the record at which the service sent the response `what`, as in `said`, or with
        `received` the job manager received it; 0 if there is none.
        """
        for each, n in self.received if received else self.said:
            if each == what:
                return n
        return 0


@once
def kind_of_answer(record: Record) -> str:
    """Return the type of a start response; "fatal" or "final" for such exceptions and releases."""
    kind, data = str(payload(record).get("type")), data_of(record)
    if kind == "release" and data.get("final") is True:
        return "final"
    if kind == "exception" and data.get("severity") == 0:
        return "fatal"
    return kind


def data_of(record: Record) -> dict[str, Any]:
    """Return the data of a start response, or {}."""
    found = payload(record).get("data")
    return found if isinstance(found, dict) else {}


def ranks_of(record: Record) -> int:
    """Return the ranks of a release as a bit set: ALL for RFC 21's "all", 0 if not an idset."""
    ranks = str(data_of(record).get("ranks", ""))
    if ranks == "all":
        return ALL
    found = idset_of(ranks)
    return found.bits if found is not None else 0


def _fold_start(start: Start | None, _part: None, record: Record, seen: Seen) -> Start | None:
    is_sent = record.kind == SEND
    if type(record.message) is Request:  # isinstance of a Struct costs several times as much
        if is_sent:
            earlier = start.released | start.earlier if start is not None else 0
            is_reattach = payload(record).get("reattach") is True
            return Start(record.n, reattach=is_reattach, earlier=earlier)
        return start and start.but(taken=record.n, taker=record.party)
    if start is None or errnum(record):
        return start
    kind = kind_of_answer(record)
    if is_sent:
        if (start.taker or seen.facts.exec_peer) not in ("", record.party):
            return start  # a service that was replaced speaks late
        if payload(record).get("type") == "release" and _is_misfit(start, record, seen):
            start = start.but(misfit=record.n)
        released = start.released | ranks_of(record)
        return start.but(said=_with(start.said, kind, record.n), released=released)
    if kind == "final":  # the request is over: keep only this, and whether an exception came before
        is_fatal = bool(start.place("fatal"))
        return _ended(start.sent, start.taken, record.n, is_fatal=is_fatal)
    return start.but(received=_with(start.received, kind, record.n))


def _is_misfit(start: Start, record: Record, seen: Seen) -> bool:
    """Whether a release does not fit what its job still holds."""
    ranks, final = ranks_of(record), data_of(record).get("final")
    resources: Resources | None = seen.states[RESOURCES].get(job_id(record))
    if not ranks or resources is None:
        return not ranks
    left = resources.ranks & ~start.released
    if ranks == ALL:
        return final is not True
    still = left & ~ranks
    is_too_early = still & ~start.earlier if final else not still
    return bool(ranks & ~left or is_too_early)


_ONCE: Final = {"start": ("start", "finish"), "finish": ("finish",)}
"""Answers that come once, with those that they may not follow."""


def is_senseless(record: Record, seen: Seen) -> bool:
    """Whether a start response without an error is one that RFC 32 does not have at this place of
    the conversation.

    RFC 32 does not say what the job manager does about it.
    """
    if errnum(record):
        return False
    kind = payload(record).get("type")
    start: Start | None = seen.states[STARTS].get(job_id(record))
    if start is None or not is_open(start):
        return True
    for each in _ONCE.get(str(kind), ()):
        if start.place(each, received=True):
            return True
    if kind == "release" and start.misfit:
        return True
    if kind in ("start", "reattached"):
        is_readable = isinstance(payload(record).get("data"), dict)
    else:
        is_readable = is_well_formed(kind, data_of(record))
    return not is_readable


def _with(said: tuple[tuple[str, Place], ...], kind: str, n: int) -> tuple[tuple[str, int], ...]:
    for each, _ in said:
        if each == kind:
            return said
    return (*said, (kind, n))


_AGE_BITS: Final = 30


def _ended(sent: int, taken: int, n: int, *, is_fatal: bool) -> Start:
    """Return a start request whose final release the job manager has received at record `n`."""
    final = (("final", n),)
    said = (*final, ("fatal", n)) if is_fatal else final
    return Start(sent, taken, said=said, received=final)


def _pack_start(start: Start) -> int | None:
    """Of a start request that `_ended`: where, its age, and whether it had a fatal exception."""
    if is_open(start):
        return None
    n = start.received[-1][1]
    age = n - start.sent
    if age >> _AGE_BITS:
        return None
    return (n << 1 | bool(start.place("fatal"))) << _AGE_BITS | age


def _unpack_start(number: int) -> Start:
    where, age = number >> _AGE_BITS, number & ((1 << _AGE_BITS) - 1)
    n = where >> 1
    return _ended(n - age, n, n, is_fatal=bool(where & 1))


STARTS: Final = view(
    "starts",
    sent("request", START),
    received("request", START),
    sent("response", START),
    received("response", START),
    key=job_id,
    fold=_fold_start,
    reads=(RESOURCES,),
    packing=Packing(_pack_start, _unpack_start),
)
"""The latest `Start` of each job, by job id. After the final release only that release is kept, and
whether a fatal exception came before."""

SENSELESS: Final = Mark(
    Trait("senseless", tuple(received("response", START)), is_senseless, lambda: (STARTS,)), bool
)

LINK: Final = view(
    "exec link",
    received("request", topics.EXEC_HELLO, topics.JOB_MANAGER_DISCONNECT),
    sent("request", EXEC_DISCONNECT),
    noted(Kind.MODULE),
    sent("response", topics.EXEC_HELLO),
    received("response", START, mark=ERROR),
    received("response", START, mark=SENSELESS),
    key=no_key,
    fold=_fold_link,
    reads=(STARTS,),
)
"""A single state: the `ExecLink`."""


def link_of(seen: Seen) -> ExecLink:
    link: ExecLink | None = seen.states[LINK].get(())
    return NO_LINK if link is None else link


def start_of(seen: Seen, record: Record) -> Start | None:
    """Return the start request of the record's job, or None if it is void."""
    start: Start | None = seen.states[STARTS].get(job_id(record))
    return start if start is not None and start.sent > link_of(seen).lost else None


def is_open(start: Start | None) -> bool:
    """Whether the job manager has not received the final release."""
    # `received` begins anew with that
    return start is not None and not (start.received and start.received[0][0] == "final")


def outstanding(seen: Seen) -> int:
    """Return a job with a start request that is not finally released and not void, or 0."""
    ended = link_of(seen).ended
    starts: Mapping[Any, Start] = seen.all(STARTS)
    found = (job for job, start in starts.items() if start.sent > ended and is_open(start))
    return next(found, 0)


# --- responses when they are sent


class StartResponse(Live, frozen=True, gc=False):
    """The properties of a response to a start request at its send, and of the request."""

    kind: str
    """The kind of the response, as `kind_of_answer` returns it; "" for an error, and for a type
    that RFC 32 does not have."""
    is_error: bool
    is_services: bool
    """Whether the execution service sends it."""
    is_known: bool = False
    """Whether a start request of the job was sent before."""
    is_taken: bool = False
    """Whether the service has received that request."""
    is_void: bool = False
    """Whether the execution service or the job manager was lost since that request."""
    is_of_departed: bool = False
    """Whether the party that sends it has disconnected since it received the request."""
    is_reattach: bool = False
    said: tuple[str, ...] = ()
    """The kinds of the earlier responses to the request."""


_KINDS: Final = frozenset(
    ("start", "reattached", "release", "final", "exception", "fatal", "finish")
)


def _saying(record: Record, seen: Seen) -> StartResponse:
    is_error = errnum(record) != 0
    is_services = record.party == seen.facts.exec_peer
    kind = "" if is_error else kind_of_answer(record)
    kind = kind if kind in _KINDS else ""
    start: Start | None = seen.states[STARTS].get(job_id(record))
    if start is None:
        return StartResponse(kind, is_error, is_services)
    link = link_of(seen)
    return StartResponse(
        kind,
        is_error,
        is_services,
        True,
        start.taken != 0,
        start.sent <= link.lost,
        record.party == link.departed and start.taken < link.disconnected,
        start.reattach,
        tuple([each for each, _ in start.said]),
    )


SAYING: Final = Trait("saying", tuple(sent("response", START)), _saying, lambda: (STARTS, LINK))


# --- whether a response can be logged


def is_well_formed(kind: Any, data: dict[str, Any]) -> bool:
    """Whether a response of this type can be logged."""
    match kind:
        case "start":
            return not data
        case "finish":
            return INTEGER.fits(data.get("status"))
        case "release":
            return is_release(data.get("ranks")) and BOOLEAN.fits(data.get("final"))
        case "exception":
            is_named = STRING.fits(data.get("type")) and STRING.fits(data.get("note", ""))
            return is_named and SEVERITY.fits(data.get("severity"))
    return False


def is_release(ranks: Any) -> bool:
    """Whether a value can be the ranks of a release: an idset that is not empty, or RFC 21's
    "all".
    """
    return ranks == "all" or bool(idset_of(ranks))
