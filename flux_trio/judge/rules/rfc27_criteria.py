"""RFC 27, Design Criteria: the goals of the protocol as a whole.

Left out: sizes and rates (27.criteria.9, 27.criteria.10), which a trace does not show. Adjusting
expirations (27.criteria.12) is with the requests for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import errnum, job_id, logged, no_key, payload, sent, topic_of
from flux_trio.judge.engine.view import Place, Seen, view
from flux_trio.judge.views.durable import DURABLE, is_durable
from flux_trio.judge.views.eventlogs import LOG, is_open_at_its_end
from flux_trio.judge.views.holding import OVERLAPS, WRITTEN, overlaps
from flux_trio.judge.views.hook_answers import HOOK_ANSWERS, LAST_CALLS, hook_answer, is_held
from flux_trio.judge.views.jobs import LIFE, RUN, Life, is_fatal
from flux_trio.judge.views.queueing import (
    LATE_S,
    OVER_LIMIT,
    PRIORITIES,
    SENDINGS,
    UNSENT,
    Sending,
    not_asked_for,
    over_limit,
    priorities_untold,
    rank_of,
)
from flux_trio.judge.views.queues import QUEUES, STARTED, Queues, queue_of, stop_of
from flux_trio.judge.views.raising import ANY_JOB, RAISED
from flux_trio.judge.views.scheduling import (
    ASKED,
    LINK,
    REQUESTING,
    SUCCESS,
    SUCCESSES,
    Requesting,
    asked_of,
    link_of,
)
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()


def _not_asked_for(seen: Seen) -> Iterable[Broken]:
    limit = seen.facts.limit
    mode = "in unlimited mode" if limit is None else f"below the limit of {limit}"
    return not_asked_for(seen, f", {mode}")


@RULES.by(
    REQUESTING,
    "27.criteria.2",
    sent("request", topics.SCHED_ALLOC),
    views=(*UNSENT, *OVER_LIMIT),
    debts=_not_asked_for,
)
def the_scheduler_sets_the_limit(requesting: Requesting, record: Record, seen: Seen) -> Finding:
    return not requesting.is_limited or over_limit(record, seen) or True


@RULES.judge("27.criteria.3", SUCCESSES, views=OVERLAPS)
def a_new_scheduler_knows_what_runs(record: Record, seen: Seen) -> Finding:
    jobid, link = job_id(record), link_of(seen)
    if jobid is None or payload(record).get("type") != SUCCESS:
        return None
    for other, grant in overlaps(record, seen):
        if grant.since < link.hello_ended:
            text = f"job {jobid}: is granted what job {other} had before this scheduler came"
            return Broken(text, (grant.since,), party=record.party)
    return seen.at(WRITTEN, jobid) is not None


@RULES.judge("27.criteria.4", logged("exception", "finish"), views=[LIFE, LINK, RAISED])
def running_jobs_outlive_the_scheduler(record: Record, seen: Seen) -> Finding:
    jobid, link = job_id(record), link_of(seen)
    life: Life | None = seen.at(LIFE, jobid)
    is_lost = link.lost > link.answered
    if life is None or life.state != RUN or not is_lost:
        return None
    if not is_fatal(record):
        return payload(record).get("name") == "finish"
    if seen.at(RAISED, jobid) or seen.at(RAISED, ANY_JOB):
        return True
    text = f"job {jobid}: a running job gets a fatal exception, and all that happened is the loss"
    return Broken(f"{text} of the scheduler", (link.lost,))


FIRST_ASKED: Final = view(
    "first asked",
    sent("request", topics.JOB_SUBMIT, topics.SCHED_ALLOC, topics.SCHED_FREE, topics.SCHED_CANCEL),
    key=no_key,
    fold=lambda n, _part, record, _seen: n or record.n,
    state=Place,
)
"""A single state: the first message about a job to the job manager or the scheduler."""


def _was_there_before(life: Life, seen: Seen) -> bool:
    """Whether a job may have been asked for before the trace."""
    first: int | None = seen.at(FIRST_ASKED)
    return not seen.facts.begins and (first is None or life.since < first)


@RULES.judge(
    "27.criteria.5",
    sent("request", topics.SCHED_ALLOC),
    views=[FIRST_ASKED, LIFE, ASKED, LINK, QUEUES, SENDINGS, HOOK_ANSWERS, LAST_CALLS],
)
def requests_go_out_in_order(record: Record, seen: Seen) -> Finding:
    """Requests are sent in the order of priority. A job waits for its request from when plugins
    have answered the hook of SCHED, and every later hook about it.

    A job that a plugin held until the plugin was removed is left out: the trace does not say since
    when it waits.
    """
    jobid = job_id(record)
    life: Life | None = seen.at(LIFE, jobid)
    sendings: tuple[Sending, ...] = seen.at(SENDINGS) or ()
    if life is None or not life.t_submit or _was_there_before(life, seen):
        return None
    answer = hook_answer(jobid, life, seen)
    if answer is not None and answer.is_failure:
        return None
    for sending in sendings:
        if sending.rank <= rank_of(life) or sending.n < link_of(seen).answered:
            continue
        if _waited_long(jobid, life, sending, seen) or _waited_for_a_start(
            record, life, sending, seen
        ):
            text = (
                f"job {jobid}: priority {life.priority}, was asked for after job {sending.jobid} "
                f"of priority {-sending.rank[0]}, which was submitted later or ranks below it"
            )
            return Broken(text, (life.since, sending.n))
    return True


def _waited_long(jobid: Any, life: Life, sending: Sending, seen: Seen) -> bool:
    """Whether a job that was not asked for before waited when another one was decided on."""
    if asked_of(seen, jobid).first_alloc:
        return False
    queues: Queues = seen.at(QUEUES) or STARTED
    answer = hook_answer(jobid, life, seen)
    since = max(life.t, queues.t, answer.t if answer else 0.0) + LATE_S
    return sending.t >= since and sending.decided > max(_waits_since(jobid, life, seen), queues.n)


def _waited_for_a_start(record: Record, life: Life, sending: Sending, seen: Seen) -> bool:
    """Whether both jobs waited for the same: the scheduler, or the start of their queues.

    Then the job manager decided on both after that.
    """
    queues: Queues = seen.at(QUEUES) or STARTED
    ready, (started, start) = link_of(seen).answered, queues.started
    queue = queue_of(payload(record).get("jobspec"))
    if queues.n < ready and stop_of(seen, queue) is None:
        beginning = ready
    elif ready < start == queues.n and {queue, sending.queue} <= {*started}:
        beginning = start
    else:
        return False
    waits = _waits_since(job_id(record), life, seen)
    return waits < beginning < sending.n and waits < sending.decided


def _waits_since(jobid: Any, life: Life, seen: Seen) -> int:
    """Return the record since which a job waits for a request, whatever else may keep it."""
    asked, called = asked_of(seen, jobid), seen.at(LAST_CALLS, jobid) or 0
    lost = link_of(seen).lost if asked.alloc else 0
    return max(life.since, life.prioritized, called, asked.canceled, lost)


@RULES.judge(
    "27.criteria.6",
    sent("request", topics.SCHED_ALLOC),
    sent("response", topics.SCHED_HELLO),
    views=[LIFE, DURABLE],
)
def the_scheduler_learns_the_order(record: Record, seen: Seen) -> Finding:
    jobid, content = job_id(record), payload(record)
    life: Life | None = seen.at(LIFE, jobid)
    if life is None or errnum(record) or not is_durable(seen, record.party, life.prioritized):
        return None
    topic = topic_of(record)
    if content.get("priority") != life.priority:
        text = f"job {jobid}: priority: expected {life.priority} in {topic}"
        return Broken(f"{text}, got {content.get('priority')!r}", (life.prioritized,))
    is_known = topic == topics.SCHED_HELLO and life.t_submit
    if is_known and content.get("t_submit") != life.t_submit:
        text = f"job {jobid}: t_submit: expected {life.t_submit!r} in {topic}"
        return Broken(f"{text}, got {content.get('t_submit')!r}")
    return True


def _canceled_and_still_there(seen: Seen) -> Iterable[Broken]:
    for jobid, life in seen.all(LIFE).items():
        is_done = not is_held(jobid, life, seen) and not is_open_at_its_end(jobid, seen)
        if life.fatal and not life.held and not life.freed and is_done:
            text = f"job {jobid}: had a fatal exception before it had resources, and is not clean"
            yield Broken(text, (life.fatal,), job=jobid)


@RULES.judge(
    "27.criteria.7",
    logged("alloc", "clean"),
    views=[LIFE, LOG, HOOK_ANSWERS],
    debts=_canceled_and_still_there,
)
def a_waiting_job_can_be_canceled(record: Record, seen: Seen) -> Finding:
    life: Life | None = seen.at(LIFE, job_id(record))
    if life is None or not life.fatal or life.held or life.freed:
        return None
    if payload(record).get("name") == "clean":
        return True
    text = f"job {job_id(record)}: alloc event after a fatal exception"
    return Broken(text, (life.fatal,))


@RULES.judge(
    "27.criteria.8",
    sent("request", topics.SCHED_PRIORITIZE),
    views=PRIORITIES,
    debts=priorities_untold,
)
def a_new_priority_reaches_the_scheduler(record: Record, _seen: Seen) -> Finding:
    return bool(payload(record).get("jobs"))
