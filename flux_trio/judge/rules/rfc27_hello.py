"""RFC 27, Hello: the scheduler's request, and the responses about jobs that hold resources."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Final

from flux_trio.judge.checks.owners import require_owner
from flux_trio.judge.checks.shapes import JOB_ID, NUMBER, PRIORITY, require_key, require_object
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    errnum,
    job_id,
    message,
    payload,
    received,
    request_of,
    sent,
    topic_of,
)
from flux_trio.judge.engine.view import Key, Place, Seen, view
from flux_trio.judge.views.calls import OPEN, is_waiting
from flux_trio.judge.views.holding import OVERLAPS, WRITTEN, overlaps
from flux_trio.judge.views.jobs import LIFE, Life
from flux_trio.judge.views.presence import CUT_OFF
from flux_trio.judge.views.scheduling import LINK, SUCCESS, SUCCESSES, link_of, refusal_of
from flux_trio.messages import Errno, Request, topics
from flux_trio.messages.types import STREAMING
from flux_trio.trace import Record

RULES: Final = Rules()

HELLO, READY = topics.SCHED_HELLO, topics.SCHED_READY
ANSWERED: Final = sent("response", HELLO)

# The requests that a scheduler might send to the job manager too early.
OTHER_REQUESTS: Final = (READY, topics.JOB_RAISE, topics.JOB_RAISEALL, topics.JOB_URGENCY)


def _sender(record: Record) -> str:
    found = message(record)
    return found.sender if isinstance(found, Request) else ""


def _fold_early(was: Place | None, _part: None, record: Record, seen: Seen) -> Place | None:
    if not seen.facts.has_begun("scheduler"):
        return was
    match topic_of(record):
        case topics.JOB_MANAGER_DISCONNECT:
            return None
        case topics.SCHED_HELLO:
            return 0
    return record.n if was is None else was


EARLY: Final = view(
    "early",
    received("request", HELLO, *OTHER_REQUESTS, topics.JOB_MANAGER_DISCONNECT),
    key=_sender,
    fold=_fold_early,
)
"""By peer: the record of its first request, if that is not hello; 0 once it has said hello."""


@RULES.judge("27.hello.1", received("request", HELLO, READY), views=[EARLY])
def hello_comes_first(record: Record, seen: Seen) -> Finding:
    """A scheduler sends sched-hello before other requests."""
    sender = _sender(record)
    early: Place | None = seen.at(EARLY, sender)
    if topic_of(record) == HELLO:
        if not early:
            return True
        text = f"{sender}: expected sched-hello before its first other request"
        return Broken(text, (early,), party=sender)
    if early == 0:
        return None
    return Broken(f"{sender}: sched-ready, and it has not said sched-hello", party=sender)


@RULES.judge("27.hello.2", sent("request", HELLO))
def hello_has_no_payload(record: Record, _seen: Seen) -> Finding:
    found = request_of(record)
    if found.payload is None:
        return True
    return Broken(f"sched-hello: expected an empty payload, got {found.payload!r:.80}")


@RULES.judge("27.hello.3", sent("request", HELLO), needs_headers=True)
def hello_asks_for_a_stream(record: Record, _seen: Seen) -> Finding:
    found = request_of(record)
    if found.is_streaming:
        return True
    return Broken(f"sched-hello: flags: expected {STREAMING:#x} to be set, got {found.flags:#x}")


def _fold_reported(_n: int | None, _part: None, record: Record, _seen: Seen) -> Place:
    return record.n


def _reported_in(record: Record, seen: Seen) -> list[tuple[Key, None]]:
    is_told = not errnum(record) and link_of(seen).is_answered_by(record)
    return [(job_id(record), None)] if is_told else []


REPORTED: Final = view(
    "reported",
    ANSWERED,
    parts=_reported_in,
    fold=_fold_reported,
    reads=(LINK,),
    clears=lambda record, _facts: topic_of(record) == HELLO,
)
"""By job id: the record of the last response that named it in answer to this hello."""


def _unreported(seen: Seen) -> list[tuple[int, Life]]:
    hello = link_of(seen).hello
    jobs = seen.all(LIFE).items()
    return [
        (jobid, life)
        for jobid, life in jobs
        if isinstance(jobid, int)
        and life.held
        and not life.bypassed
        and (seen.at(REPORTED, jobid) or 0) < hello
    ]


@RULES.judge("27.hello.4", ANSWERED, views=[LIFE, LINK, REPORTED])
def every_job_with_resources_is_told_once(record: Record, seen: Seen) -> Finding:
    """By ENODATA, the answers to hello have named each job with resources once. After a later
    hello, answers to the earlier one may still arrive.
    """
    if not link_of(seen).is_answered_by(record):
        return None
    if errnum(record) == Errno.ENODATA:
        missing = _unreported(seen)
        if not missing:
            return True
        jobid, life = missing[0]
        return Broken(f"job {jobid}: holds resources, and hello did not tell of it", (life.held,))
    before = seen.at(REPORTED, job_id(record)) or 0
    if errnum(record) or before < link_of(seen).hello:
        return None
    return Broken(f"job {job_id(record)}: hello tells of it again", (before,))


@RULES.judge("27.hello.5", ANSWERED, views=[LIFE])
def no_other_job_is_told(record: Record, seen: Seen) -> Finding:
    life: Life | None = seen.at(LIFE, job_id(record))
    if life is None or errnum(record):
        return None
    if life.held:
        return True
    text = f"job {job_id(record)}: hello tells of it, and it is in {life.state} without resources"
    return Broken(text, (life.since,))


require_object(RULES, "27.hello.6", ANSWERED)
require_key(RULES, "27.hello.7", ANSWERED, key="id", shape=JOB_ID)
require_key(RULES, "27.hello.8", ANSWERED, key="priority", shape=PRIORITY)
require_owner(RULES, "27.hello.9", ANSWERED)
require_key(RULES, "27.hello.10", ANSWERED, key="t_submit", shape=NUMBER)


@RULES.judge("27.hello.11", ANSWERED, views=[LIFE])
def fractions_of_seconds_survive(record: Record, seen: Seen) -> Finding:
    life: Life | None = seen.at(LIFE, job_id(record))
    t_submit = payload(record).get("t_submit")
    if life is None or life.t_submit % 1 == 0 or not isinstance(t_submit, (int, float)):
        return None
    if t_submit % 1:
        return True
    return Broken(f"job {job_id(record)}: t_submit: expected {life.t_submit}, got {t_submit}")


@RULES.judge("27.hello.12", SUCCESSES, views=OVERLAPS)
def what_hello_tells_is_not_granted(record: Record, seen: Seen) -> Finding:
    jobid, link = job_id(record), link_of(seen)
    if jobid is None or payload(record).get("type") != SUCCESS:
        return None
    for other, grant in overlaps(record, seen):
        if link.hello < grant.since < link.hello_ended:
            text = f"job {jobid}: granted what job {other} has by the hello response"
            return Broken(text, (grant.since,))
    return seen.at(WRITTEN, jobid) is not None


@RULES.judge("27.hello.14", sent("request", READY), views=[LINK])
def enodata_is_waited_for(_record: Record, seen: Seen) -> Finding:
    link = link_of(seen)
    if link.hello_done > link.hello_sent:
        return True
    text = "sched-ready: expected the scheduler to wait for ENODATA in answer to its sched-hello"
    return Broken(text, (link.hello_sent,))


def _unended(seen: Seen) -> Iterable[Broken]:
    """A job manager that still reads its jobs from the kvs does not know yet which ones to tell."""
    link, manager = link_of(seen), seen.facts.manager
    if seen.at(CUT_OFF, manager) or is_waiting(seen, manager, topics.KVS_SERVICES):
        return
    if link.hello > max(link.hello_ended, link.refused, link.gone) and seen.facts.scheduler:
        since = max(link.hello, seen.may_act_on(manager))
        yield Broken("sched-hello: its answers are not ended with ENODATA", (since,))


@RULES.judge("27.hello.15", ANSWERED, views=[LINK, OPEN, CUT_OFF], debts=_unended)
def enodata_ends_hello(record: Record, seen: Seen) -> Finding:
    link = link_of(seen)
    if record.party != seen.facts.manager:
        return None  # the broker, in the place of a job manager that is gone
    if not link.is_answered_by(record):
        return None
    if link.hello_ended > link.hello:
        return Broken("sched-hello: a response after ENODATA", (link.hello_ended,))
    return errnum(record) == Errno.ENODATA


def stays_after_refusal(topic: str) -> Callable[[Seen], Iterable[Broken]]:
    """Return the debt of a scheduler whose sched-hello, or sched-ready, was refused."""

    def debts(seen: Seen) -> Iterable[Broken]:
        if n := refusal_of(link_of(seen), topic):
            text = f"{_name(topic)} was refused; expected the scheduler to exit"
            yield Broken(text, (n,), is_to_leave=True)

    return debts


def exits_after_refusal(topic: str, record: Record, seen: Seen) -> Finding:
    """Judge what a scheduler sends whose sched-hello, or sched-ready, was refused."""
    n = refusal_of(link_of(seen), topic)
    if not n or record.party != seen.facts.scheduler:
        return None
    if topic_of(record) == topics.JOB_MANAGER_DISCONNECT:
        return True
    text = f"{topic_of(record)} after {_name(topic)} was refused; expected the scheduler to exit"
    return Broken(text, (n,))


def _name(topic: str) -> str:
    return topic.rpartition(".")[2]


RULES.judge(
    "27.hello.17",
    sent("request", HELLO, READY, topics.JOB_MANAGER_DISCONNECT),
    views=[LINK],
    debts=stays_after_refusal(HELLO),
)(functools.partial(exits_after_refusal, HELLO))
