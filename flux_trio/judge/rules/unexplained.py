"""What no clause explains: a suspension, a lost service, an error response between the services.

A rule here breaks no clause. It reports what has happened if nothing that is broken can be why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    BROKER,
    ERROR,
    MODULE,
    errnum,
    job_id,
    message,
    noted,
    payload,
    received,
    sent,
    topic_of,
)
from flux_trio.judge.engine.view import Live, Place, Seen, view
from flux_trio.judge.views.calls import ENDS
from flux_trio.judge.views.execution import LINK as EXEC_LINK
from flux_trio.judge.views.execution import START, STARTS, answered_hello, is_senseless, outstanding
from flux_trio.judge.views.execution import link_of as exec_link_of
from flux_trio.judge.views.resources import AS_RECEIVED, Acquired
from flux_trio.judge.views.scheduling import ASKED, LINK, link_of, refusal_of
from flux_trio.judge.views.suspending import is_wrong_answer
from flux_trio.messages import Errno, Request, Response, service_of, topics
from flux_trio.trace import CLIENT, KILLED, Kind, Record

RULES: Final = Rules()

LINES: Final = sent("request", topics.LOG_APPEND, topics.BROKER_LOG)
LINE_CHARS_MAX: Final = 200


def line_in(record: Record) -> str:
    """Return the line that a service writes to the log; "" if the trace does not show it."""
    found: Any = getattr(message(record), "payload", None)
    line = found.get("text") if isinstance(found, dict) else found
    return line[:LINE_CHARS_MAX].strip() if isinstance(line, str) else ""


class Line(Live, frozen=True, gc=False):
    """The last line that a party has written to the log."""

    n: Place
    text: str


LAST_LINES: Final = view(
    "last log lines",
    LINES,
    key=lambda record: record.party,
    fold=lambda _had, _part, record, _seen: Line(record.n, line_in(record)),
    state=Line,
)
"""The last `Line` of each party in the log, by its name."""


def _with_line(text: str, party: str, seen: Seen) -> str:
    """Return a text with the line that a party wrote to the log not long before."""
    line: Line | None = seen.at(LAST_LINES, party)
    if line is None or not line.text or seen.is_old(line.n):
        return text
    return f"{text}; it logged: {line.text}"


# --- services that leave

ASKED_TO, GONE = "asked to", "gone"
_BY_ROLES: Final = (
    topics.SCHED_HELLO,
    topics.SCHED_READY,
    topics.SCHED_ALLOC,
    topics.SCHED_FREE,
    topics.RESOURCE_ACQUIRE,
    topics.RESOURCE_RELEASE,
    topics.EXEC_HELLO,
    START,
)
BETWEEN_SERVICES: Final = (*_BY_ROLES, *topics.COMMITS)
"""Of these, clients may send commits: what they ask and are told is left out, and not kept."""
TOLD_MAX: Final = 4


def _fold_told(
    had: tuple[Place, ...] | None, _part: None, record: Record, _seen: Seen
) -> tuple[Place, ...]:
    return (*(had or ()), record.n)[-TOLD_MAX:]


TOLD: Final = view(
    "last told",
    sent("request", *BETWEEN_SERVICES),
    sent("response", *_BY_ROLES),
    key=lambda record: record.peer,
    fold=_fold_told,
    state=tuple[Place, ...],
)
"""By party: the records of the last messages that were sent to it; one of them may be why it
leaves."""


class Leaving(Live, frozen=True, gc=False):
    """A party that was asked to leave, or that is gone."""

    how: str
    n: Place = 0
    """In a router's trace: the record at which the broker disconnected it, if it had not been asked
    to leave."""
    told: tuple[Place, ...] = ()


def _leaving(record: Record, _seen: Seen) -> Iterable[tuple[str, str]]:
    content, topic = payload(record), topic_of(record)
    if record.kind == MODULE:
        return [(str(content.get("module")), GONE if content.get("what") in ENDS else "")]
    if topic.endswith(topics.DISCONNECT):
        found = message(record)
        return [(found.sender, GONE)] if isinstance(found, Request) and found.sender else []
    is_asked = topic not in topics.FIRST_REQUESTS
    return [(record.peer, ASKED_TO) if is_asked else (record.party, "")]


def _has_role(party: str, seen: Seen) -> bool:
    facts = seen.facts
    return party in (facts.manager, facts.scheduler, facts.exec_peer)


def _fold_leaving(had: Leaving | None, how: str, record: Record, seen: Seen) -> Leaving | None:
    """A router does not show which module a disconnect is of: one that is asked later is there."""
    party = getattr(record.message, "sender", "")
    if how == GONE and record.kind != MODULE and not _has_role(party, seen):
        return None  # a client, of which there are any number
    if how != GONE or had is not None or record.party != BROKER or record.kind == MODULE:
        return Leaving(how) if how else None
    if not seen.facts.role_of(party) or _may_leave(party, seen):
        return Leaving(how)
    return Leaving(how, record.n, seen.at(TOLD, party) or ())


UNACQUIRED: Final = view(
    "unacquired",
    received("response", topics.RESOURCE_ACQUIRE, mark=ERROR),
    sent("request", topics.RESOURCE_ACQUIRE),
    key=lambda record: record.party,
    fold=lambda _had, _part, record, _seen: record.n if errnum(record) else None,
    state=Place,
)
"""By party: the error that ended its acquire, also of an acquire before the trace."""


def _may_leave(party: str, seen: Seen) -> bool:
    """Whether RFC 27, 28 or 32 lets a party leave by itself: it was refused something."""
    had: Acquired | None = seen.at(AS_RECEIVED, party)
    if seen.at(UNACQUIRED, party) or (had is not None and had.release_failed):
        return True
    is_refused = refusal_of(link_of(seen), topics.SCHED_READY) > 0
    return party == seen.facts.scheduler and is_refused


LEAVING: Final = view(
    "leaving",
    sent("request", "*.shutdown", topics.JOB_MANAGER_DISCONNECT, *topics.FIRST_REQUESTS),
    noted(Kind.MODULE),
    parts=_leaving,
    fold=_fold_leaving,
    reads=(TOLD, AS_RECEIVED, UNACQUIRED, LINK),
)
"""The parties that were asked to leave or are gone (`Leaving`), by name, until they come again."""


def _lost(party: str, leaving: Leaving) -> Broken:
    text = f"{party} has left, and nobody had asked it to"
    return Broken(text, (leaving.n, *leaving.told), party=party)


def _gone(seen: Seen) -> Iterable[Broken]:
    """Yield the modules that have left and not come back."""
    parties: Mapping[Any, Leaving] = seen.all(LEAVING)
    return [_lost(party, leaving) for party, leaving in parties.items() if leaving.n]


@RULES.judge(
    "unexplained.lost-service",
    sent("request", *topics.FIRST_REQUESTS),
    noted(Kind.MODULE),
    views=[LEAVING, LAST_LINES],
    debts=_gone,
)
def services_leave_when_they_are_asked_to(record: Record, seen: Seen) -> Finding:
    """A service leaves only when it is asked to. A module that came back had left before, which the
    trace may not show.
    """
    if record.message is not None:
        leaving: Leaving | None = seen.at(LEAVING, record.party)
        return None if leaving is None or not leaving.n else _lost(record.party, leaving)
    content = payload(record)
    party, reason = str(content.get("module")), str(content.get("reason", ""))
    is_lost = content.get("what") in ("crashed", "returned") and KILLED not in reason
    if not is_lost or _may_leave(party, seen):
        return None
    text = _with_line(f"{party} has {content.get('what')}: {reason}", party, seen)
    return Broken(text, seen.at(TOLD, party) or (), party=party)


# --- errors

NO_FAILURES: Final = (Errno.ENODATA, Errno.ECANCELED)
"""The error numbers with which a stream ends without a failure."""


def _asked(record: Record, seen: Seen) -> Iterable[tuple[tuple[str, str], None]]:
    topic = topic_of(record)
    is_kept = topic not in topics.COMMITS or _has_role(record.party, seen)
    return [((record.party, topic), None)] if is_kept else []


LAST_ASKED: Final = view(
    "last asked",
    sent("request", *BETWEEN_SERVICES),
    parts=_asked,
    fold=lambda _had, _part, record, _seen: record.n,
    state=Place,
)
"""The record of the last request of each party with each topic."""


def _server_of(topic: str, seen: Seen) -> str:
    """Return the party that serves a topic, "" if there is none."""
    service, facts = service_of(topic), seen.facts
    roles = {
        topics.SCHED: facts.scheduler,
        facts.exec_service: facts.exec_peer,
        topics.JOB_MANAGER: facts.manager,
    }
    return roles.get(service, service)


def _is_due(record: Record, seen: Seen) -> bool:
    """Whether a refusal is due, or it is known already that there is nobody who serves this.

    A module of flux-core that was asked to leave answers so what it has not read.
    """
    found, topic = message(record), topic_of(record)
    if errnum(record) == Errno.ENOSYS and seen.at(LEAVING, record.party) is not None:
        return True
    if record.party == BROKER:
        server, service = _server_of(topic, seen), service_of(topic)
        if server in ("", CLIENT) or seen.at(LEAVING, server) is not None:
            return True  # that somebody ends a program which is no module does not show
        has_come = service in (topics.SCHED, seen.facts.exec_service)
        return errnum(record) == Errno.ENOSYS and not has_come
    if topic != topics.EXEC_HELLO or not isinstance(found, Response):
        return False
    hello = answered_hello(exec_link_of(seen), found)
    is_busy = outstanding(seen) or (hello is not None and hello.busy)
    return bool(is_busy) or not seen.facts.has_begun("exec")


@RULES.judge(
    "unexplained.error-response",
    sent("response", *BETWEEN_SERVICES, mark=ERROR),
    views=[LAST_ASKED, LEAVING, EXEC_LINK, LAST_LINES],
)
def services_get_no_errors_from_each_other(record: Record, seen: Seen) -> Finding:
    """Services get no error responses from each other. Errors that clauses foresee are left out:
    refused expirations, infeasible jobs, refused submissions.
    """
    found = message(record)
    if not isinstance(found, Response) or errnum(record) in NO_FAILURES or _is_due(record, seen):
        return None
    client = found.routes[0] if found.routes else record.peer
    if found.topic in topics.COMMITS and not _has_role(client, seen):
        return None
    text = f"{found.topic} of {client}: {record.party} answered with errnum {found.errnum}"
    text = f"{text}: {found.error_text}" if found.error_text else text
    asked = seen.at(LAST_ASKED, (client, found.topic))
    because = () if asked is None else (asked,)
    return Broken(_with_line(text, record.party, seen), because, job=job_id(record))


# --- suspensions

STOPPED: Final = re.compile(r"(alloc|start): stop due to .*|scheduling suspended: .*")
"""The lines that the job manager logs, of flux-core and of flux-trio, when it takes a service for
lost."""
ANSWERS: Final = received("response", topics.SCHED_ALLOC, topics.SCHED_FREE, START)


class Answered(NamedTuple):
    """What the job manager has last received from a service: the records at which the service
    sent it.
    """

    last: Place
    """The last response."""
    wrong: Place = 0
    """The last response that the protocol does not allow there."""


def _fold_answered(had: Answered | None, _part: None, record: Record, seen: Seen) -> Answered:
    is_of_scheduler = service_of(topic_of(record)) == topics.SCHED
    is_wrong = (is_wrong_answer if is_of_scheduler else is_senseless)(record, seen)
    return Answered(record.ref, record.ref if is_wrong else had.wrong if had else 0)


ANSWERED: Final = view(
    "last answers",
    ANSWERS,
    key=lambda record: service_of(topic_of(record)),
    fold=_fold_answered,
    reads=(ASKED, LINK, STARTS),
)
"""The last responses (`Answered`) of each service, by its name."""


@RULES.judge("unexplained.suspension", LINES, views=[LINK, EXEC_LINK, ANSWERED])
def a_service_is_taken_for_lost_when_it_is(record: Record, seen: Seen) -> Finding:
    """The job manager takes a service for lost only when it is lost: by a disconnect or an error
    response, which the trace shows, or for a reason that it writes to the log.
    """
    found = STOPPED.search(line_in(record))
    if found is None or record.party != seen.facts.manager:
        return None
    is_exec = found[1] == "start"
    if not (exec_link_of(seen) if is_exec else link_of(seen)).is_up:
        return None
    service = seen.facts.exec_service if is_exec else topics.SCHED
    answered: Answered = seen.at(ANSWERED, service) or Answered(0)
    because = tuple(sorted({answered.last, answered.wrong} - {0}))
    return Broken(f"the job manager takes {service} for lost; it logged: {found[0]}", because)
