"""RFC 32, Hello, and the end of an execution service: loss, fatal error, successor."""

from __future__ import annotations

from typing import Final, cast

from flux_trio.judge.checks.shapes import STRING, require_key, require_object
from flux_trio.judge.engine.facts import Facts
from flux_trio.judge.engine.rule import (
    ANY_TOPIC,
    OWN,
    Broken,
    Finding,
    Key,
    Rules,
    Seen,
    State,
    Step,
    errnum,
    job_id,
    message,
    no_key,
    noted,
    payload,
    received,
    sent,
    view,
    while_live,
)
from flux_trio.judge.engine.selector import MODULE, RECV, topic_of
from flux_trio.judge.engine.view import Place
from flux_trio.judge.views.execution import (
    LINK,
    STARTS,
    Hello,
    answered_hello,
    is_open,
    link_of,
    outstanding,
)
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.trace import Kind, Record

RULES: Final = Rules()

SAID: Final = sent("request", topics.EXEC_HELLO)
ANSWERED: Final = sent("response", topics.EXEC_HELLO)
ANY_START: Final = f"*.{topics.START_METHOD}"
REGULAR_NAME: Final = topics.JOB_EXEC

# --- what is said

require_object(RULES, "32.hello.3", SAID)
require_key(RULES, "32.hello.4", SAID, key="service", shape=STRING)


def _fold_names(names: tuple[str, ...] | None, _part: None, record: Record, _seen: Seen) -> State:
    name = str(payload(record).get("service"))
    return names if names is not None and name in names else (*(names or ()), name)


NAMES: Final = view("exec names", SAID, key=no_key, fold=_fold_names)
"""A single state: every service name that an exec-hello has had."""


@RULES.judge("32.hello.1", sent("response", ANY_START), views=(NAMES,))
def registered_before_it_answers(record: Record, seen: Seen) -> Finding:
    found = message(record)
    assert isinstance(found, Response)
    service, _, method = found.topic.rpartition(".")
    if method != topics.START_METHOD or "type" not in payload(record):
        return None
    if service in (seen.at(NAMES) or ()):
        return True
    return Broken(f"{found.topic} was answered, but nobody said exec-hello as service {service}")


def _client(record: Record) -> Key | None:
    return getattr(record.message, "routes", ())[:1] or None


def _never_answered(state: State, _facts: Facts) -> Broken | None:
    open_ = cast(_Open, state)
    if not open_:
        return None
    n = open_[0][1]
    return Broken(f"exec-hello at {n} was never answered", (n,))


_Open = tuple[tuple[int, Place, tuple[str, ...]], ...]
"""The hellos of a client that are open: matchtag, receipt, routes."""


@RULES.rule(
    "32.impl.8",
    received("request", topics.EXEC_HELLO, topics.JOB_MANAGER_DISCONNECT),
    ANSWERED,
    key=_client,
    state=_Open,
    needs_headers=True,
    debt=_never_answered,
)
def hello_is_an_ordinary_rpc(state: State, record: Record, facts: Facts) -> Step:
    found, open_ = message(record), cast(_Open, state or ())
    matchtag = getattr(found, "matchtag", 0)
    if isinstance(found, Request):
        if found.topic == topics.JOB_MANAGER_DISCONNECT:
            return Step()  # nobody waits for an answer
        if not found.wants_response:
            return Step(open_ or None)
        # nobody waits for an answer to one that had the client's name before
        of_this = tuple(each for each in open_ if each[2] == found.routes)
        return Step((*of_this, (matchtag, record.n, found.routes)))
    rest = tuple(each for each in open_ if each[0] != matchtag)
    if record.party != facts.manager:
        # the broker answers for a job manager that is gone, or whose inbox is full
        routes = getattr(found, "routes", ())
        return Step(tuple(each for each in open_ if each[::2] != (matchtag, routes)) or None)
    if rest == open_:
        routes = getattr(found, "routes", ())
        is_of_another = bool(open_) and all(each[2] != routes for each in open_)
        if is_of_another or len(routes) > 1:
            return Step(rest or None)  # of one that had the client's name before
        text = f"exec-hello: no request is open with matchtag {matchtag}"
        return Step(rest or None, broken=Broken(text))
    return Step(rest or None, kept=True)


# --- whether it is accepted


def _answered(record: Record, seen: Seen) -> Hello | None:
    found = message(record)
    assert isinstance(found, Response)
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
    text = f"no start request is outstanding: expected success for {hello.peer}, got an error"
    return Broken(f"exec-hello: {text}: {payload_text(record)}", (hello.n,))


def payload_text(record: Record) -> str:
    """Return the text of an error response."""
    found = message(record)
    return found.error_text if isinstance(found, Response) else ""


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
    return Broken(f"exec-hello: {text}, got an error: {payload_text(record)}", (link.fatal,))


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


@RULES.check("32.hello.7", ANSWERED)
def success_has_no_payload(record: Record, _facts: Facts) -> Finding:
    found = message(record)
    assert isinstance(found, Response)
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


@RULES.rule(
    "32.hello.9",
    received("response", topics.EXEC_HELLO),
    while_live(OWN, sent("request", ANY_TOPIC), sent("response", ANY_TOPIC), noted(Kind.MODULE)),
    key=_party,
    state=Place,
)
def a_refused_service_stops(state: State, record: Record, _facts: Facts) -> Step:
    if record.kind == RECV:
        # ENOSYS: there is no job manager, which refuses nobody
        return Step(record.n if errnum(record) not in (0, Errno.ENOSYS) else None)
    if state is None:
        return Step()
    if record.kind == MODULE or topic_of(record).endswith(f".{topics.DISCONNECT}"):
        return Step(kept=True)
    topic = topic_of(record)
    if topic != topics.EXEC_HELLO and not topic.endswith(f".{topics.START_METHOD}"):
        return Step(state)  # whatever else it may be
    text = f"{record.party} goes on with {topic}"
    refused = int(str(state))
    return Step(state, broken=Broken(f"exec-hello was refused and is fatal: {text}", (refused,)))


# --- what the job manager does when there is none


@RULES.judge("32.impl.7", sent("request", topics.EXEC_HELLO, "<exec>.*"), views=(LINK,))
def nothing_is_sent_after_a_fatality(record: Record, seen: Seen) -> Finding:
    link, facts = link_of(seen), seen.facts
    found = message(record)
    assert isinstance(found, Request)
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
    found, facts = message(record), seen.facts
    assert isinstance(found, Request)
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
