"""RFC 32, Hello, and the end of an execution service: loss, fatal error, successor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flux_trio.judge.checks.shapes import STRING, require_key, require_object
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    ANY_TOPIC,
    MODULE,
    OWN,
    RECV,
    errnum,
    job_id,
    message,
    no_key,
    noted,
    payload,
    received,
    request_of,
    response_of,
    sent,
    topic_of,
    while_live,
)
from flux_trio.judge.engine.view import Key, Place, Seen, view
from flux_trio.judge.views.execution import (
    LINK,
    STARTS,
    Hello,
    answered_hello,
    is_open,
    link_of,
    outstanding,
)
from flux_trio.messages import Errno, Request, topics
from flux_trio.trace import Kind, Record

RULES: Final = Rules()

SAID: Final = sent("request", topics.EXEC_HELLO)
ANSWERED: Final = sent("response", topics.EXEC_HELLO)
ANY_START: Final = f"*.{topics.START_METHOD}"
REGULAR_NAME: Final = topics.JOB_EXEC

# --- what is said

require_object(RULES, "32.hello.3", SAID)
require_key(RULES, "32.hello.4", SAID, key="service", shape=STRING)


def _fold_names(
    names: tuple[str, ...] | None, _part: None, record: Record, _seen: Seen
) -> tuple[str, ...] | None:
    name = str(payload(record).get("service"))
    return names if names is not None and name in names else (*(names or ()), name)


NAMES: Final = view("exec names", SAID, key=no_key, fold=_fold_names)
"""A single state: every service name that an exec-hello has had."""


@RULES.judge("32.hello.1", sent("response", ANY_START), views=(NAMES,))
def registered_before_it_answers(record: Record, seen: Seen) -> Finding:
    found = response_of(record)
    service, _, method = found.topic.rpartition(".")
    if method != topics.START_METHOD or "type" not in payload(record):
        return None
    if service in (seen.at(NAMES) or ()):
        return True
    return Broken(f"{found.topic} was answered, but nobody said exec-hello as service {service}")


def _client(record: Record) -> Key | None:
    return getattr(record.message, "routes", ())[:1] or None


_Open = tuple[tuple[int, Place, tuple[str, ...]], ...]
"""The hellos of a client that are open: matchtag, receipt, routes."""


def _clients(record: Record, seen: Seen) -> Iterable[tuple[Key, None]]:
    """Whose hellos a record is about: all, if the job manager ends, whom nobody asks any more."""
    if record.kind == MODULE:
        is_end = seen.facts.is_manager_gone(record)
        return [(client, None) for client in seen.all(OPEN_HELLOS)] if is_end else []
    client = _client(record)
    return [] if client is None else [(client, None)]


def _fold_open(was: _Open | None, _part: None, record: Record, seen: Seen) -> _Open | None:
    if record.kind == MODULE:
        return None
    if not seen.facts.has_begun("exec"):
        return was
    found, open_ = message(record), was or ()
    matchtag, routes = getattr(found, "matchtag", 0), getattr(found, "routes", ())
    if isinstance(found, Request):
        if found.topic == topics.JOB_MANAGER_DISCONNECT:
            return None  # nobody waits for an answer
        if not found.wants_response:
            return open_ or None
        # nobody waits for an answer to one that had the client's name before
        of_this = tuple(each for each in open_ if each[2] == routes)
        return (*of_this, (matchtag, record.n, routes))
    if record.party != seen.facts.manager:
        # the broker answers for a job manager that is gone, or whose inbox is full
        return tuple(each for each in open_ if each[::2] != (matchtag, routes)) or None
    return tuple(each for each in open_ if each[0] != matchtag) or None


OPEN_HELLOS: Final = view(
    "open exec hellos",
    received("request", topics.EXEC_HELLO, topics.JOB_MANAGER_DISCONNECT),
    noted(Kind.MODULE),
    ANSWERED,
    parts=_clients,
    fold=_fold_open,
    state=_Open,
)
"""The hellos that are not answered, by client."""


def _never_answered(seen: Seen) -> Iterable[Broken]:
    for open_ in seen.all(OPEN_HELLOS).values():
        n = open_[0][1]
        yield Broken(f"exec-hello at {n} was never answered", (n,))


@RULES.judge("32.impl.8", ANSWERED, views=[OPEN_HELLOS], needs_headers=True, debts=_never_answered)
def hello_is_an_ordinary_rpc(record: Record, seen: Seen) -> Finding:
    client, found = _client(record), message(record)
    if client is None or record.party != seen.facts.manager:
        return None
    open_: _Open = seen.at(OPEN_HELLOS, client) or ()
    matchtag, routes = getattr(found, "matchtag", 0), getattr(found, "routes", ())
    if any(each[0] == matchtag for each in open_):
        return True
    is_of_another = bool(open_) and all(each[2] != routes for each in open_)
    if is_of_another or len(routes) > 1:
        return None  # of one that had the client's name before
    return Broken(f"exec-hello: no request is open with matchtag {matchtag}")


# --- whether it is accepted


def _answered(record: Record, seen: Seen) -> Hello | None:
    found = response_of(record)
    return answered_hello(link_of(seen), found)


def _is_of_gone(record: Record, seen: Seen) -> bool:
    """Whether the broker answers, in the place of a job manager that has ended."""
    return record.party != seen.facts.manager or errnum(record) == Errno.ENOSYS


def _must_accept(record: Record, seen: Seen) -> Finding:
    """A hello while nothing is outstanding, neither when it came nor when it is answered."""
    hello = _answered(record, seen)
    if hello is None or not hello.is_readable or hello.busy or outstanding(seen):
        return None
    if _is_of_gone(record, seen):
        return None
    if not errnum(record):
        return True
    if errnum(record) == Errno.EPERM and hello.is_roleless:
        return None  # the trace does not tell whether it is a guest's
    text = f"no start request is outstanding: expected success for {hello.peer}, got an error"
    return Broken(f"exec-hello: {text}: {response_of(record).error_text}", (hello.n,))


@RULES.judge("32.hello.6", ANSWERED, views=(LINK,))
def a_new_service_replaces_one_with_nothing_to_do(record: Record, seen: Seen) -> Finding:
    return _must_accept(record, seen) if seen.facts.exec_peer else None


@RULES.judge("32.criteria.6", ANSWERED, views=(LINK,))
def a_service_comes_back_after_it_was_gone(record: Record, seen: Seen) -> Finding:
    return _must_accept(record, seen) if link_of(seen).disconnected else None


@RULES.judge("32.impl.6", ANSWERED, views=(LINK,))
def a_fatality_ends_all_starts(record: Record, seen: Seen) -> Finding:
    link, hello = link_of(seen), _answered(record, seen)
    is_readable = hello is None or hello.is_readable
    if not link.fatal or not is_readable or _is_of_gone(record, seen):
        return None
    if not errnum(record):
        return True
    text = "its error response ended all starts: expected success for a new exec-hello"
    return Broken(
        f"exec-hello: {text}, got an error: {response_of(record).error_text}", (link.fatal,)
    )


@RULES.judge("32.start.38", ANSWERED, views=(LINK, STARTS))
def a_finally_released_start_is_not_outstanding(record: Record, seen: Seen) -> Finding:
    lost = link_of(seen).lost
    past = [s for s in seen.all(STARTS).values() if not is_open(s) and s.sent > lost]
    if not past or not seen.facts.exec_peer:
        return None
    said = _must_accept(record, seen)
    if isinstance(said, Broken):
        return Broken(said.text, (max(start.place("final", received=True) for start in past),))
    return said


@RULES.judge("32.hello.2", ANSWERED, views=(LINK,))
def any_service_name_will_do(record: Record, seen: Seen) -> Finding:
    hello = _answered(record, seen)
    if hello is None or _name(seen, hello) in ("", REGULAR_NAME):
        return None
    return _must_accept(record, seen)


@RULES.judge("32.hello.5", ANSWERED, views=(LINK,))
def the_regular_name_will_do(record: Record, seen: Seen) -> Finding:
    hello = _answered(record, seen)
    if hello is None or _name(seen, hello) != REGULAR_NAME:
        return None
    return _must_accept(record, seen)


def _name(seen: Seen, hello: Hello) -> str:
    return next((name for peer, name in seen.facts.exec_hellos if peer == hello.peer), "")


@RULES.judge("32.hello.8", ANSWERED, views=(LINK,))
def none_replaces_one_that_is_busy(record: Record, seen: Seen) -> Finding:
    hello, busy = _answered(record, seen), outstanding(seen)
    if hello is None or not hello.busy or not busy:
        return None
    if errnum(record):
        return True
    if hello.peer == seen.facts.exec_peer:
        return None  # one that is registered says hello after a job manager that was killed
    text = f"job {busy} has a start request outstanding to {seen.facts.exec_service}"
    started = seen.at(STARTS, busy).sent
    return Broken(f"exec-hello: {text}: expected an error, got success", (started, hello.n))


@RULES.judge("32.hello.7", ANSWERED)
def success_has_no_payload(record: Record, _seen: Seen) -> Finding:
    found = response_of(record)
    if found.errnum:
        return None
    if found.payload is None:
        return True
    return Broken(f"exec-hello: expected no payload, got {found.payload!r:.80}")


# --- what a service does that was refused


def _party(record: Record) -> Key | None:
    """Whose conduct a record is, or whose end or beginning."""
    if record.kind == MODULE:
        return str(payload(record).get("module"))
    if isinstance(record.message, Request) and record.message.topic.endswith(topics.DISCONNECT):
        return record.message.sender
    return record.party


_ANY_CONDUCT: Final = (
    *sent("request", ANY_TOPIC),
    *sent("response", ANY_TOPIC),
    *noted(Kind.MODULE),
)


def _has_ended(record: Record) -> bool:
    return record.kind == MODULE or topic_of(record).endswith(f".{topics.DISCONNECT}")


def _fold_turned_away(was: Place | None, _part: None, record: Record, _seen: Seen) -> Place | None:
    if record.kind == RECV:
        # ENOSYS: there is no job manager, which refuses nobody
        return record.n if errnum(record) not in (0, Errno.ENOSYS) else None
    return None if _has_ended(record) else was


TURNED_AWAY: Final = view(
    "turned away",
    received("response", topics.EXEC_HELLO),
    while_live(OWN, _ANY_CONDUCT),
    key=_party,
    fold=_fold_turned_away,
)
"""By party: the record at which it received that its exec-hello was refused, until it ends."""


@RULES.judge("32.hello.9", while_live(TURNED_AWAY, _ANY_CONDUCT), views=[TURNED_AWAY])
def a_refused_service_stops(record: Record, seen: Seen) -> Finding:
    refused: Place | None = seen.at(TURNED_AWAY, _party(record))
    if refused is None:
        return None
    if _has_ended(record):
        return True
    topic = topic_of(record)
    if topic != topics.EXEC_HELLO and not topic.endswith(f".{topics.START_METHOD}"):
        return None  # whatever else it may be
    text = f"{record.party} goes on with {topic}"
    return Broken(f"exec-hello was refused and is fatal: {text}", (refused,))


# --- what the job manager does when there is none


@RULES.judge("32.impl.7", sent("request", topics.EXEC_HELLO, "<exec>.*"), views=(LINK,))
def nothing_is_sent_after_a_fatality(record: Record, seen: Seen) -> Finding:
    link, facts = link_of(seen), seen.facts
    found = request_of(record)
    if found.topic == topics.EXEC_HELLO and link.fatal:
        return True
    service, _, method = found.topic.rpartition(".")
    to_exec = service == facts.exec_service and method != topics.DISCONNECT
    if not link.fatal or record.party != facts.manager or not to_exec:
        return None
    text = "an error in answer to start ended the execution service: expected no request"
    return Broken(f"{text} before the next exec-hello, got {found.topic}", (link.fatal,))


@RULES.judge("32.criteria.7", sent("request", ANY_START), views=(LINK, NAMES))
def requests_go_to_the_name_that_was_given(record: Record, seen: Seen) -> Finding:
    found, facts = request_of(record), seen.facts
    service, _, method = found.topic.rpartition(".")
    if method != topics.START_METHOD or record.party != facts.manager:
        return None
    if service == facts.exec_service:
        return len(seen.at(NAMES) or ()) > 1 or None
    if service not in (seen.at(NAMES) or ()) or not link_of(seen).accepted:
        return None
    job = job_id(record)
    text = f"{facts.exec_service} has taken over: expected its start request"
    return Broken(f"{text} for job {job}, got {found.topic}", (link_of(seen).accepted,))
