"""RFC 6: a request is answered. A service that leaves cannot answer any more what it was asked.

This is about the services whose protocols no other RFC describes: job-ingest, job-list with
job-info, resource and kvs. A service that waits for nobody else answers within a second; if it has
had a request for longer when it leaves, it would not have answered. The kvs may take longer: it
waits for its disk, which no trace shows. It has to answer all the same while it stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import no_key, noted, payload, response_of, sent
from flux_trio.judge.engine.view import Place, Seen, Selector, view
from flux_trio.judge.views.calls import DROP, ENDS, OPEN, OUTCOME, Call, Outcome, is_waiting
from flux_trio.judge.views.presence import CUT_OFF, SERVES
from flux_trio.messages import service_of, topics
from flux_trio.trace import Kind, Record

RULES: Final = Rules()

SERVICES: Final = (
    topics.JOB_INGEST,
    topics.JOB_LIST,
    topics.JOB_INFO,
    *topics.KVS_SERVICES,
    topics.RESOURCE,
)
MAY_WAIT: Final = (topics.LIST_ID,)
"""The topics of requests that may wait for something that is not there yet."""

COMINGS: Final = view(
    "comings of modules",
    noted(Kind.MODULE),
    key=lambda record: str(payload(record).get("module")),
    fold=lambda _old, _part, record, _seen: (payload(record).get("what") in ENDS, record.n),
    state=tuple[bool, Place],
)
"""By module: whether it has left, and the record at which it left or was started."""


def _unheard(record: Record, _seen: Seen) -> Iterable[tuple[str, str]]:
    content = payload(record)
    if record.message is None:
        return [(str(content.get("module")), "")]
    return [(record.party, str(content.get("service")))]


UNNOTICED: Final = view(
    "returns unnoticed",
    [Selector(DROP, "event", topics.SERVICE_BACK_EVENT)],
    noted(Kind.MODULE),
    parts=_unheard,
    fold=lambda old, service, _record, _seen: (*(old or ()), service) if service else None,
    state=tuple[str, ...],
)
"""By module that leaves: the services that are back, of which it may not have received the news."""

HINDERED: Final = view(
    "hindered",
    sent("request", topics.JOB_HINDRANCE),
    key=no_key,
    fold=lambda _n, _part, record, _seen: record.n,
    state=Place,
)
"""A single state: the record at which a service last said that its disk is full, or that it is not
any more."""


def _waits(party: str, seen: Seen) -> bool:
    """Whether a service may have to wait for another one, or for room on the disk."""
    is_alone = any(is_away for module, (is_away, _) in seen.all(COMINGS).items() if module != party)
    return is_waiting(seen, party) or is_alone or bool(seen.at(CUT_OFF, party) or seen.at(HINDERED))


def _waits_for_return(party: str, received: int, seen: Seen) -> bool:
    """Whether a service was away after a request came and is back; the party may not know."""
    for service in seen.at(UNNOTICED, party) or ():
        _, n = seen.at(COMINGS, seen.at(SERVES, service) or service) or (True, 0)
        if n > received:
            return True
    return False


def _unanswered(party: str, seen: Seen) -> Iterator[tuple[Call, int]]:
    """Yield the requests that a service has received and not answered, each with its receipt."""
    for key, n in seen.requests_of(party):
        call: Call | None = seen.at(OPEN, key)
        if call is None or call.is_streaming or call.topic in MAY_WAIT:
            continue
        if n < call.n:
            continue  # an earlier client of that name has asked, and is gone
        if service_of(call.topic) in SERVICES:
            yield call, n


def _owed(seen: Seen) -> Iterable[Broken]:
    for party in {seen.at(SERVES, service) for service in SERVICES} - {None}:
        unanswered = list(_unanswered(party, seen))
        if unanswered and not _waits(party, seen):
            for call, n in unanswered:
                yield Broken(f"{call.topic} was received, and is not answered", (n,), party=party)


@RULES.by(
    OUTCOME,
    "6.response.2",
    sent("response", "*"),
    noted(Kind.MODULE),
    views=[OPEN, SERVES, COMINGS, CUT_OFF, UNNOTICED, HINDERED],
    debts=_owed,
)
def a_request_is_answered(outcome: Outcome | None, record: Record, seen: Seen) -> Finding:
    """A request that was answered with success has an object as payload, or none."""
    if outcome is None:
        return _left_unanswered(record, seen)
    if outcome.errnum:
        return None
    if outcome.payload is not str or outcome.topic == topics.LOG_DMESG:  # lines of text
        return True
    text = f"errnum 0 with text {response_of(record).payload!r:.80}; expected an errnum"
    return Broken(f"{outcome.topic}: {text}")


def _left_unanswered(record: Record, seen: Seen) -> Finding:
    """Judge a module that leaves by what it has not answered for more than a second."""
    party = str(payload(record).get("module"))
    if payload(record).get("what") not in ENDS or _waits(party, seen):
        return None
    if not seen.is_old(seen.may_act_on(party)):
        return None  # it was about to act, or in the midst of it
    if not all(seen.is_old(n) for module, (_, n) in seen.all(COMINGS).items() if module != party):
        return None  # it may have waited for a module that is just back
    for call, n in _unanswered(party, seen):
        if service_of(call.topic) in topics.KVS_SERVICES:
            continue  # the kvs may have waited for its disk
        if seen.is_old(n) and not _waits_for_return(party, n, seen):
            text = f"{call.topic}: {party} has left and had not answered it for more than a second"
            return Broken(text, (n,), party=party)
    return None
