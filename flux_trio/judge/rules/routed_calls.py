"""RFC 6 in the trace of a router, which shows no matchtags: requests and responses are counted.

In a trace that begins while the instance runs, the calls of those are counted whose first message
is in it. What is answered more than once, and what is not
answered at all, is left to the rules of RFC 27, 28 and 32.
"""

from __future__ import annotations

from typing import Any, Final

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    ANY_DISCONNECT,
    ANY_TOPIC,
    errnum,
    message,
    payload,
    request_of,
    sent,
    topic_of,
)
from flux_trio.judge.engine.view import Live, Place, Seen, View, view
from flux_trio.judge.rules.rfc6_answers import MAY_WAIT, SERVICES
from flux_trio.judge.views.acquiring import change_of
from flux_trio.judge.views.scheduling import FINAL
from flux_trio.messages import Request, Response, service_of, topics
from flux_trio.trace import Record
from flux_trio.trace.routed import CLIENT as NOT_TRACED
from flux_trio.trace.routed import EXITED, MODULE_STATUS

RULES: Final = Rules(routed=True)

STREAMS: Final = (topics.SCHED_HELLO, topics.RESOURCE_ACQUIRE)
"""The streams that are counted: they are always streams, and end or begin anew visibly."""
OTHERS: Final = frozenset(
    {topics.SCHED_ALLOC, topics.SCHED_FREE, topics.SCHED_CANCEL, topics.SCHED_PRIORITIZE}
) | (topics.STREAMS - set(STREAMS))
"""Requests that are not counted: of others that may be streams, no trace without flags tells which
response is the last."""
_NOT_COUNTED: Final = ("rexec", "log", "module")
"""Services of flux-core whose requests may be streams, or want no response."""
_DISCONNECT: Final = f".{topics.DISCONNECT}"
_NO_CALLS: Final = (topics.START_METHOD, topics.DISCONNECT, "shutdown")
"""The methods of messages that are answered otherwise, or not at all."""


class Calls(Live, frozen=True, gc=False):
    """The open requests of one client with one topic, and whether there ever were any."""

    open: tuple[Place, ...] = ()
    had: bool = False
    served: Place = 0
    """The record at which a stream last began anew: in the current edition, with all resources."""
    void: Place = 0
    """The record at which the service left, or the client said that it ends. What was asked before
    needs no answer, and may get one."""

    @property
    def due(self) -> tuple[Place, ...]:
        """The number of open requests to a service that is there."""
        return tuple([n for n in self.open if n > self.void])

    def answered(self) -> Calls:
        """Return the calls after a last response, which counts for the oldest request that is
        due.
        """
        done = next(iter(self.due or self.open), 0)
        return self.but(open=tuple([n for n in self.open if n != done]))

    def refused(self) -> Calls:
        """Return the calls after an error, which is for a request that was not served, if any."""
        unserved = next((n for n in self.open if n > max(self.served, self.void)), 0)
        if not unserved:
            return self.answered()
        return self.but(open=tuple([n for n in self.open if n != unserved]))

    def begun_anew(self, n: Place) -> Calls:
        """Return the calls after a stream has begun, by which an earlier one has ended."""
        return self.but(open=tuple([each for each in self.open if each > self.served]), served=n)


def _is_call(topic: str) -> bool:
    method = topic.rpartition(".")[2]
    if topic in OTHERS or method in _NO_CALLS or method.endswith("-cancel"):
        return False
    return service_of(topic) not in _NOT_COUNTED


def _key(record: Record) -> tuple[str, str] | None:
    found = message(record)
    if not isinstance(found, (Request, Response)) or not _is_call(found.topic):
        return None
    return (found.routes[0] if found.routes else "", found.topic)


def _fold(calls: Calls | None, part: str | None, record: Record, _seen: Seen) -> Calls | None:
    calls = calls or Calls()
    found = message(record)
    if part is not None:
        if part == SERVER:
            return calls.but(void=record.n)
        unanswered = calls.due or (calls.open if part == CLIENT else ())
        return calls.but(open=unanswered, void=record.n) if unanswered else None
    if isinstance(found, Request):
        return calls.but(open=(*calls.open, record.n), had=True)
    assert isinstance(found, Response)
    if found.topic not in STREAMS:
        return calls.answered()
    if found.errnum:
        return calls.refused()
    return calls.begun_anew(record.n) if change_of(payload(record)).is_whole else calls


CLIENT, SERVER, ENDED = "client", "server", "ended"


def _of_gone(record: Record, seen: Seen) -> list[tuple[tuple[str, str], str]]:
    """The calls of a module that has gone to the service that is told so, and those to it.

    One that says itself that it ends waits for no answer of anybody; one may be on its way.
    """
    found = request_of(record)
    if found.topic == MODULE_STATUS:
        has_ended = payload(record).get("status") == EXITED
        return [(key, ENDED) for key in seen.all(CALLS) if has_ended and key[0] == found.sender]
    keys: Any = seen.all(CALLS) if found.sender else ()
    service = service_of(found.topic)
    calls = [
        (key, CLIENT) for key in keys if (key[0], service_of(key[1])) == (found.sender, service)
    ]
    return calls + [(key, SERVER) for key in keys if service_of(key[1]) == found.sender]


CALLS: Final[View] = view(
    "calls",
    sent("request", ANY_TOPIC),
    sent("response", ANY_TOPIC),
    key=_key,
    parts=_of_gone,
    many=sent("request", ANY_DISCONNECT, MODULE_STATUS),
    fold=_fold,
)
"""The open requests (`Calls`), by client and topic."""


def _unanswered(seen: Seen) -> list[Broken]:
    pairs: Any = seen.all(CALLS).items()
    return [
        Broken(f"{topic} of {client or 'a client'} was never answered", (calls.due[0],))
        for (client, topic), calls in pairs
        if seen.facts.has_come(client)
        and len(calls.due) > (topic == topics.RESOURCE_ACQUIRE)  # whose stream does not end
    ]


START: Final = f"*.{topics.START_METHOD}"


def _fold_asked(count: int | None, _part: None, record: Record, _seen: Seen) -> int:
    found, count = message(record), count or 0
    if isinstance(found, Request):
        return count + 1
    content = payload(record)
    data = content.get("data")
    is_released = isinstance(data, dict) and data.get("final") is True
    is_last = content.get("type") in FINAL or is_released or errnum(record)
    return max(count - 1, 0) if is_last else count


ASKED: Final[View] = view(
    "asked of scheduler and execution service",
    sent("request", topics.SCHED_ALLOC, START),
    sent("response", topics.SCHED_ALLOC, START),
    key=topic_of,
    fold=_fold_asked,
)
"""By topic: the number of requests for resources, or for a start, without their last response."""


def _of_manager(record: Record, seen: Seen) -> Finding:
    """Judge the answer of a scheduler or execution service: the job manager alone asks these.

    An error does not say which request it is for, so that only their number can be judged.
    """
    found, facts = message(record), seen.facts
    topics_ = (topics.SCHED_ALLOC, f"{facts.exec_service}.{topics.START_METHOD}")
    if not isinstance(found, Response) or found.topic not in topics_ or not facts.manager:
        return None
    to = found.routes[0] if found.routes else ""
    is_stray = to not in ("", facts.manager)
    role = "scheduler" if found.topic == topics.SCHED_ALLOC else "exec"
    if not is_stray and facts.has_begun(role):
        is_stray = bool(found.errnum) and not seen.at(ASKED, found.topic)
    if not is_stray:
        return None
    text = f"{found.topic}: a response to {to}, which has no open request of this topic"
    return Broken(text, party=record.party)


def _may_be_of_gone(topic: str, seen: Seen) -> bool:
    """Whether a module has gone that had asked this and was not answered: nobody receives the
    answer, so that the trace does not show to whom it is.
    """
    found: Any = seen.all(CALLS).items()
    return any(key[1] == topic and len(calls.open) > len(calls.due) for key, calls in found)


@RULES.judge("6.request.1", sent("response", ANY_TOPIC), views=[CALLS, ASKED])
def a_response_is_of_a_request(record: Record, seen: Seen) -> Finding:
    key = _key(record)
    if key is None:
        return _of_manager(record, seen)
    if not seen.facts.has_come(key[0]):
        return None
    calls: Calls | None = seen.at(CALLS, key)
    if calls is not None and calls.open:
        return True
    client, topic = key
    if client == NOT_TRACED and _may_be_of_gone(topic, seen):
        return None
    text = f"{topic}: a response to {client or 'a client'}, which has no open request of this topic"
    return Broken(text, party=record.party)


@RULES.judge(
    "6.response.2",
    sent("response", ANY_TOPIC),
    sent("request", ANY_DISCONNECT),
    views=[CALLS],
    debts=_unanswered,
)
def a_request_is_answered(record: Record, seen: Seen) -> Finding:
    """Each request is answered. A service that does not wait for another party answers within a
    second.
    """
    found = message(record)
    if isinstance(found, Request):
        return _left_unanswered(found.sender, seen)
    return _key(record) is not None


def _left_unanswered(party: str, seen: Seen) -> Finding:
    """Judge a service of SERVICES that leaves by what it has not answered for so long."""
    keys: Any = seen.all(CALLS) if party in SERVICES else {}
    if any(client == party and calls.due for (client, _), calls in keys.items()):
        return None
    for (client, topic), calls in keys.items():
        is_its = (
            seen.facts.has_come(client)
            and service_of(topic) == party
            and topic not in (*STREAMS, *MAY_WAIT)
        )
        if is_its and calls.due and seen.is_old(calls.due[0]):
            text = f"{topic} of {client or 'a client'}: {party} has left and had not answered it"
            return Broken(f"{text} for more than a second", (calls.due[0],), party=party)
    return None
