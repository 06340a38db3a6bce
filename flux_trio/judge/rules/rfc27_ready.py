"""RFC 27, Ready: the scheduler's concurrency mode, and how the job manager keeps to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flux_trio.judge.checks.shapes import STRING, between, one_of, require_key, require_object
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import errnum, no_key, payload, received, rpc, sent, topic_of
from flux_trio.judge.engine.view import Key, Place, Seen, view
from flux_trio.judge.rules.rfc27_hello import exits_after_refusal, stays_after_refusal
from flux_trio.judge.views.granting import ANSWERING, Answering
from flux_trio.judge.views.queueing import OVER_LIMIT, UNSENT, not_asked_for, over_limit
from flux_trio.judge.views.scheduling import LINK, REQUESTING, Requesting, link_of
from flux_trio.messages import Request, topics
from flux_trio.trace import Record

RULES: Final = Rules()

READY: Final = topics.SCHED_READY
ANNOUNCED: Final = sent("request", READY)
MODE: Final = one_of("unlimited", "limited")
LIMIT: Final = between(1, 2147483647)
COUNT: Final = between(0, 2**63 - 1)


def _never_ready(seen: Seen) -> Iterable[Broken]:
    link = link_of(seen)
    is_done = link.hello_done > max(link.hello_sent, link.gone) and seen.facts.scheduler
    if is_done and link.ready_sent < link.hello_sent:
        yield Broken(
            "sched-hello was answered in full, and no sched-ready follows", (link.hello_done,)
        )


@RULES.judge("27.ready.1", ANNOUNCED, views=[LINK], debts=_never_ready)
def ready_follows_hello(_record: Record, seen: Seen) -> Finding:
    link = link_of(seen)
    return link.hello_done > link.hello_sent


@RULES.judge("27.ready.2", ANNOUNCED, views=[LINK])
def ready_waits_for_hello(_record: Record, seen: Seen) -> Finding:
    link = link_of(seen)
    if link.hello_done > link.hello_sent:
        return True
    return Broken("sched-ready: sent before the answers to sched-hello are complete")


require_object(RULES, "27.ready.3", ANNOUNCED)
require_key(RULES, "27.ready.4", ANNOUNCED, key="mode", shape=STRING)
require_key(RULES, "27.ready.5", ANNOUNCED, key="mode", shape=MODE, required=False)


def _is_limited(ready: dict[str, object]) -> bool:
    return ready.get("mode") == "limited"


def _not_sent(seen: Seen, *, limited: bool) -> Iterable[Broken]:
    return not_asked_for(seen) if (seen.facts.limit is not None) == limited else ()


@RULES.by(
    REQUESTING,
    "27.ready.6",
    sent("request", topics.SCHED_ALLOC),
    views=UNSENT,
    debts=lambda seen: _not_sent(seen, limited=False),
)
def unlimited_has_no_limit(requesting: Requesting, _record: Record, _seen: Seen) -> Finding:
    return not requesting.is_limited


@RULES.by(REQUESTING, "27.ready.7", sent("request", topics.SCHED_ALLOC), views=OVER_LIMIT)
def limit_is_kept(requesting: Requesting, record: Record, seen: Seen) -> Finding:
    return requesting.is_limited and (over_limit(record, seen) or True)


@RULES.by(
    REQUESTING,
    "27.ready.8",
    sent("request", topics.SCHED_ALLOC),
    views=UNSENT,
    debts=lambda seen: _not_sent(seen, limited=True),
)
def an_answer_makes_room(requesting: Requesting, _record: Record, _seen: Seen) -> Finding:
    return requesting.is_limited


require_key(RULES, "27.ready.9", ANNOUNCED, key="limit", when=_is_limited)
require_key(RULES, "27.ready.10", ANNOUNCED, key="limit", shape=LIMIT, required=False)


def _fold_valid(_n: int | None, _part: None, record: Record, seen: Seen) -> Place | None:
    if not isinstance(record.message, Request):
        return None
    content, link = payload(record), link_of(seen)
    limit = content.get("limit")
    may_be_absent = "limit" not in content and not _is_limited(content)
    is_valid = MODE.fits(content.get("mode")) and (may_be_absent or LIMIT.fits(limit))
    is_due = record.message.sender == seen.facts.scheduler and link.hello_ended > link.hello
    return record.n if is_valid and is_due else None


def _call(record: Record) -> Key:
    """Return the RPC, or its client in the trace of a router, which shows no matchtags."""
    return rpc(record) or getattr(record.message, "routes", ())[:1]


VALID: Final = view(
    "valid ready",
    received("request", READY),
    sent("response", READY),
    key=_call,
    fold=_fold_valid,
    state=Place,
    reads=(LINK,),
)
"""By `_call`: the record at which a valid sched-ready was received after the answers to
sched-hello."""

FIRST: Final = view(
    "first ready",
    received("request", topics.SCHED_HELLO, READY),
    received("response", topics.SCHED_ALLOC, topics.SCHED_FREE),
    key=no_key,
    fold=lambda n, _part, record, _seen: (
        None if topic_of(record) == topics.SCHED_HELLO else n or record.n
    ),
    state=Place,
)
"""A single state: the record of what the job manager has received first since sched-hello: the
sched-ready, or an answer to no request, after which it may refuse the sched-ready."""


@RULES.judge("27.ready.11", sent("response", READY), views=[VALID, FIRST])
def a_valid_ready_is_accepted(record: Record, seen: Seen) -> Finding:
    """The first valid sched-ready after hello is answered without an error. A second one is out of
    order.
    """
    n = seen.at(VALID, _call(record))
    if n is None or n != seen.at(FIRST) or record.party != seen.facts.manager:
        return None
    if not errnum(record):
        return True
    text = f"sched-ready: is valid, and was answered with errnum {errnum(record)}"
    return Broken(text, (n,), party=record.party)


require_key(RULES, "27.ready.12", sent("response", READY), key="count", shape=COUNT)


@RULES.by(
    REQUESTING, "27.ready.13", sent("request", topics.SCHED_ALLOC, topics.SCHED_FREE), views=[LINK]
)
def requests_wait_for_the_answer_to_ready(
    requesting: Requesting, record: Record, seen: Seen
) -> Finding:
    if not requesting.is_greeted:
        if requesting.is_ready or not requesting.is_managers or not seen.facts.begins:
            return requesting.is_ready
        return Broken(f"{topic_of(record)} before any sched-hello, and so before sched-ready")
    link = link_of(seen)
    if link.lost > link.hello or not seen.knew(record.party, link.hello):
        return None
    text = f"{topic_of(record)} between sched-hello and the answer to sched-ready"
    return Broken(text, (link.hello,))


@RULES.by(
    ANSWERING,
    "27.ready.15",
    sent("request", READY, topics.SCHED_HELLO, topics.JOB_MANAGER_DISCONNECT),
    sent("response", topics.SCHED_ALLOC, topics.SCHED_FREE),
    views=[LINK],
    debts=stays_after_refusal(READY),
)
def refused_scheduler_exits(answering: Answering | None, record: Record, seen: Seen) -> Finding:
    if answering is not None and not answering.is_refused:
        return None
    return exits_after_refusal(READY, record, seen)
