"""RFC 27, Implementation: job ids instead of matchtags, one request in flight, and fatalities."""

from __future__ import annotations

import functools
from typing import Final

from flux_trio.judge.checks.shapes import require_key
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    EVENT,
    job_id,
    logged,
    request_of,
    response_of,
    sent,
    topic_of,
)
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.rules.rfc27_background import ends_requests, failed_by_the_manager
from flux_trio.judge.rules.rfc27_success import was_granted
from flux_trio.judge.views.calls import ASKING, Asking
from flux_trio.judge.views.granting import ANSWERING, Answering
from flux_trio.judge.views.jobs import LIFE
from flux_trio.judge.views.presence import SHUTTING_DOWN, when_leaving
from flux_trio.judge.views.raising import RAISED
from flux_trio.judge.views.scheduling import (
    ASKED,
    LINK,
    REQUESTING,
    TO_SCHEDULER,
    Requesting,
    asked_of,
    link_of,
)
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()

ALLOC, FREE = topics.SCHED_ALLOC, topics.SCHED_FREE


def has_no_matchtag(asking: Asking, record: Record, _seen: Seen) -> Finding:
    """Requests to the scheduler have no matchtag."""
    if not asking.has_matchtag:
        return True
    request = request_of(record)
    return Broken(f"{request.topic}: matchtag: expected 0, got {request.matchtag}")


RULES.by(ASKING, "27.impl.1", sent("request", ALLOC), needs_headers=True)(has_no_matchtag)
RULES.by(ASKING, "27.impl.2", sent("request", FREE), needs_headers=True)(has_no_matchtag)


@RULES.judge("27.impl.3", logged("alloc"), views=[ASKED, LIFE])
def answers_are_matched_by_id(record: Record, seen: Seen) -> Finding:
    return was_granted(record, seen, "alloc event, but no SUCCESS has its id")


require_key(RULES, "27.impl.4", sent("request", ALLOC), key="id")
require_key(RULES, "27.impl.5", sent("response", ALLOC), key="id")
require_key(RULES, "27.impl.6", sent("request", FREE), key="id")
require_key(RULES, "27.impl.7", sent("response", FREE), key="id")


@RULES.by(REQUESTING, "27.impl.8", sent("request", ALLOC), views=[ASKED])
def one_alloc_at_a_time(requesting: Requesting, record: Record, seen: Seen) -> Finding:
    if not requesting.is_pending:
        return True
    text = f"job {job_id(record)}: sched.alloc again, before the first had its final answer"
    return Broken(text, (asked_of(seen, job_id(record)).alloc,))


@RULES.by(REQUESTING, "27.impl.9", sent("request", ALLOC, FREE), views=[ASKED])
def one_free_at_a_time(requesting: Requesting, record: Record, seen: Seen) -> Finding:
    topic = requesting.topic
    if requesting.is_freeing:
        text = f"job {job_id(record)}: {topic} before its sched.free is answered"
        return Broken(text, (asked_of(seen, job_id(record)).free,))
    if topic == FREE and requesting.is_pending:
        text = f"job {job_id(record)}: sched.free while its sched.alloc is open"
        return Broken(text, (asked_of(seen, job_id(record)).alloc,))
    return topic == FREE


def has_no_errnum(answering: Answering, record: Record, seen: Seen) -> Finding:
    """The scheduler itself does not answer with an error."""
    if not answering.is_of_scheduler:
        return None
    if not answering.is_error:
        return True
    response = response_of(record)
    text = f"{response.topic}: errnum: expected 0, got {response.errnum} {response.error_text!r}"
    text += when_leaving(record, seen)
    return Broken(f"{text}; a request that cannot be met is answered with the job's id")


RULES.by(ANSWERING, "27.impl.10", sent("response", ALLOC), views=[SHUTTING_DOWN])(has_no_errnum)
RULES.by(ANSWERING, "27.impl.11", sent("response", FREE), views=[SHUTTING_DOWN])(has_no_errnum)


def _is_fatality_of_a_job(
    topic: str, requesting: Requesting | None, record: Record, seen: Seen
) -> Finding:
    """An error in answer to `topic` is about the scheduler and not about one job: the job manager
    sends no further request, and blames no job.
    """
    link = link_of(seen)
    if link.fatal_topic != topic:
        return None
    if record.kind != EVENT:
        text = f"{topic_of(record)} after an error in answer to {topic}"
        return ends_requests(text, requesting, record, seen)
    if not link.fatal or not failed_by_the_manager(record, seen):
        return None
    text = f"fails because of an error in answer to {topic}, which is of no job"
    return Broken(f"job {job_id(record)}: {text}", (link.fatal,))


def _require_fatality(clause: str, topic: str) -> None:
    RULES.by(
        REQUESTING,
        clause,
        sent("request", ALLOC),
        sent("response", topics.SCHED_READY),
        logged("exception"),
        views=[LINK, ASKED, RAISED, LIFE],
    )(functools.partial(_is_fatality_of_a_job, topic))


_require_fatality("27.impl.12", ALLOC)
_require_fatality("27.impl.13", FREE)


@RULES.by(
    REQUESTING,
    "27.impl.14",
    sent("request", *TO_SCHEDULER),
    sent("response", topics.SCHED_READY),
    views=[LINK],
)
def nothing_is_sent_after_a_fatality(
    requesting: Requesting | None, record: Record, seen: Seen
) -> Finding:
    text = f"{topic_of(record)} after an error in answer to {link_of(seen).fatal_topic}"
    return ends_requests(f"{text} and before the next sched-ready", requesting, record, seen)
