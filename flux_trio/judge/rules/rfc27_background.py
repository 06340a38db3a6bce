"""RFC 27, Background: requests and responses of the parties, by state of the job."""

from __future__ import annotations

from typing import Final

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import (
    RECV,
    errnum,
    job_id,
    logged,
    payload,
    received,
    sent,
    topic_of,
)
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views.durable import DURABLE, is_durable
from flux_trio.judge.views.granting import ANSWERING, SCHED_JOBS, Answering
from flux_trio.judge.views.holding import WRITTEN, Written
from flux_trio.judge.views.jobs import CLEANUP, LIFE, SCHED, Life, context_of, is_fatal
from flux_trio.judge.views.queueing import OVERTAKEN
from flux_trio.judge.views.raising import ANY_JOB, RAISED
from flux_trio.judge.views.scheduling import (
    ASKED,
    FINAL,
    LINK,
    REQUESTING,
    SUCCESS,
    Requesting,
    asked_of,
    gives_late_grant_back,
    has_grant,
    is_pending,
    link_of,
)
from flux_trio.messages import Request, topics
from flux_trio.trace import Record

RULES: Final = Rules()

ALLOC, FREE = topics.SCHED_ALLOC, topics.SCHED_FREE


@RULES.by(ANSWERING, "27.background.1", sent("response", ALLOC, FREE), views=[SCHED_JOBS, LINK])
def scheduler_only_answers(answering: Answering, record: Record, seen: Seen) -> Finding:
    """The scheduler sends a response only to a request. That it sends a second one is left to
    27.success.8, 27.deny.6 and 27.alloccancel.4.
    """
    topic = answering.topic
    if not answering.has_id or answering.is_error:
        return None
    if answering.is_departed:
        text = "but the scheduler has left, and with it its requests"
        because = (link_of(seen).gone,)
        text = f"job {job_id(record)}: answer to {topic}, {text}"
        return Broken(text, because, party=record.party)
    if not answering.is_of_scheduler:
        return None
    if answering.is_freeing if topic == FREE else answering.is_open:
        return True
    if topic == ALLOC and answering.has_ended:
        return None
    text = f"answer to {topic}, but no such request of this job is open"
    return Broken(f"job {job_id(record)}: {text}")


@RULES.by(REQUESTING, "27.background.2", sent("request", ALLOC), views=[LINK])
def scheduler_is_reached_as_sched(requesting: Requesting, record: Record, seen: Seen) -> Finding:
    if not requesting.is_up:
        return None
    if requesting.is_to_scheduler:
        return True
    holder = f"{record.peer} holds" if record.peer else "nobody holds"
    text = f"{holder} the service sched, while {seen.facts.scheduler} has said sched-ready"
    return Broken(text, (link_of(seen).ready_sent,))


@RULES.by(REQUESTING, "27.background.3", sent("request", ALLOC), views=[LIFE, DURABLE])
def alloc_is_asked_for_in_sched(requesting: Requesting, record: Record, seen: Seen) -> Finding:
    if not requesting.state:
        return None
    if requesting.state == SCHED:
        return True
    life: Life = seen.states[LIFE][job_id(record)]
    if not is_durable(seen, record.party, life.since):
        return None
    text = f"job {job_id(record)}: sched.alloc is for a job in SCHED; this one is in {life.state}"
    return Broken(text, (life.since,))


@RULES.by(REQUESTING, "27.background.4", sent("request", FREE), views=[LIFE, DURABLE, ASKED])
def free_is_asked_for_in_cleanup(requesting: Requesting, record: Record, seen: Seen) -> Finding:
    state = requesting.state
    if not state:
        return None
    if state == CLEANUP:
        return True
    life: Life = seen.states[LIFE][job_id(record)]
    if gives_late_grant_back(asked_of(seen, job_id(record)), life):
        return None
    text = f"job {job_id(record)}: sched.free is for a job in CLEANUP; this one is in {state}"
    return Broken(text, (life.since,))


def failed_by_the_manager(record: Record, seen: Seen) -> bool:
    """Whether an event is a fatal `alloc` exception that nobody raised and no DENY explains.

    Of a job whose history is not known, a DENY is not known either.
    """
    jobid = job_id(record)
    if not is_fatal(record) or context_of(record).get("type") != "alloc":
        return False
    if seen.at(LIFE, jobid) is None or seen.at(RAISED, jobid) or seen.at(RAISED, ANY_JOB):
        return False
    return not asked_of(seen, jobid).denied


def ends_requests(text: str, requesting: Requesting | None, record: Record, seen: Seen) -> Finding:
    """Judge a request to the scheduler, or an answer to sched-ready, by an error that the scheduler
    has answered before: it ends all requests until the next sched-ready. `text` is that of a
    violation.
    """
    link = link_of(seen)
    if not link.fatal or (requesting is not None and not requesting.has_failed):
        return None
    if topic_of(record) == topics.SCHED_READY:
        return not errnum(record)
    return Broken(text, (link.fatal,)) if seen.knew(record.party, link.fatal) else None


@RULES.judge(
    "27.background.5", logged("exception"), received("response", ALLOC), views=[ASKED, RAISED, LIFE]
)
def a_late_answer_is_waited_for(record: Record, seen: Seen) -> Finding:
    asked = asked_of(seen, job_id(record))
    if not is_pending(asked, seen):
        return None
    if record.kind == RECV:
        return payload(record).get("type") in FINAL
    if not failed_by_the_manager(record, seen):
        return None
    text = f"job {job_id(record)}: fails although its sched.alloc is merely not answered yet"
    return Broken(text, (asked.alloc,))


def _overtaken_without_alloc(seen: Seen) -> list[Broken]:
    return [
        Broken(
            f"job {jobid}: got SUCCESS after a later request had its answer, and no alloc event",
            (asked_of(seen, jobid).granted,),
            job=jobid,
        )
        for jobid in seen.all(OVERTAKEN)
        if seen.at(LIFE, jobid) is not None and has_grant(asked_of(seen, jobid), seen)
    ]


@RULES.judge(
    "27.background.6",
    logged("alloc"),
    views=[OVERTAKEN, ASKED, LIFE],
    debts=_overtaken_without_alloc,
)
def answers_are_taken_in_any_order(record: Record, seen: Seen) -> Finding:
    return bool(seen.at(OVERTAKEN, job_id(record)))


@RULES.judge("27.background.7", sent("request", ALLOC), sent("response", ALLOC), views=[WRITTEN])
def requests_are_jobspecs_and_grants_are_r(record: Record, seen: Seen) -> Finding:
    jobid, content = job_id(record), payload(record)
    if isinstance(record.message, Request):
        jobspec = content.get("jobspec")
        keys = {"resources", "tasks", "attributes", "version"}
        if isinstance(jobspec, dict) and keys <= jobspec.keys():
            return True
        return Broken(
            f"job {jobid}: expected a jobspec (RFC 14) in sched.alloc, got {jobspec!r:.80}"
        )
    written: Written | None = seen.at(WRITTEN, jobid)
    if content.get("type") != SUCCESS or written is None:
        return None
    if written.resources is not None:
        return True
    text = f"job {jobid}: what the scheduler stored as its R is not valid (RFC 20)"
    return Broken(text, (written.n,), party=record.party)
