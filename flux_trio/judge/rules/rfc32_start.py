"""RFC 32, Start Request: the job manager's request, its time, and other actions meanwhile."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from flux_trio.judge.checks.owners import require_owner
from flux_trio.judge.checks.shapes import BOOLEAN, JOB_ID, OBJECT, require_key, require_object
from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import ANY_TOPIC, job_id, payload, request_of, sent, topic_of
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views.calls import ASKING, Asking
from flux_trio.judge.views.durable import DOUBTS, is_doubtful
from flux_trio.judge.views.eventlogs import LOG, Log
from flux_trio.judge.views.execution import LINK, START, STARTS, Start, is_open, link_of, start_of
from flux_trio.judge.views.hook_answers import HOOK_ANSWERS, is_held
from flux_trio.judge.views.jobs import LIFE, RUN, Life
from flux_trio.judge.views.scheduling import ASKED, asked_of
from flux_trio.messages import service_of, topics
from flux_trio.trace import Record

RULES: Final = Rules()

SENT: Final = sent("request", START)

# --- the payload

require_object(RULES, "32.start.4", SENT)
require_key(RULES, "32.impl.2", SENT, key="id")
require_key(RULES, "32.start.5", SENT, key="id", shape=JOB_ID)
require_owner(RULES, "32.start.6", SENT)
require_key(RULES, "32.start.7", SENT, key="jobspec", shape=OBJECT)
require_key(RULES, "32.start.8", SENT, key="reattach", shape=BOOLEAN)

SECRETS: Final = re.compile(r"J|.*(sign|token|credential|password|secret).*", re.IGNORECASE)


@functools.lru_cache(maxsize=256)
def _is_secret(key: str) -> bool:
    return SECRETS.fullmatch(key) is not None


@RULES.judge("32.background.4", SENT)
def nothing_about_acting_as_another_user(record: Record, _seen: Seen) -> Finding:
    found = [key for key in payload(record) if _is_secret(key)]
    if not found:
        return True
    return Broken(f"start request of job {job_id(record)}: expected no {', '.join(found)}")


@RULES.judge("32.impl.1", SENT, needs_headers=True)
def matched_by_job_id(record: Record, _seen: Seen) -> Finding:
    found = request_of(record)
    if not found.matchtag:
        return True
    text = f"expected matchtag 0, got {found.matchtag}"
    return Broken(f"start request of job {job_id(record)}: {text}")


# --- when it is sent


@RULES.judge("32.impl.4", SENT, views=(LINK, STARTS))
def one_at_a_time(record: Record, seen: Seen) -> Finding:
    start = start_of(seen, record)
    if start is None or not is_open(start) or start.sent < link_of(seen).ended:
        return True
    text = "a second start request before the final release of the first"
    return Broken(f"job {job_id(record)}: {text}", (start.sent,))


@RULES.judge("32.start.2", sent("request", f"*.{topics.START_METHOD}"), views=(LINK, LIFE, ASKED))
def for_jobs_with_resources_when_there_is_a_service(record: Record, seen: Seen) -> Finding:
    service, _, method = topic_of(record).rpartition(".")
    if method != topics.START_METHOD or record.party != seen.facts.manager:
        return None
    life = seen.at(LIFE, job_id(record))
    if not link_of(seen).accepted:
        return Broken(f"job {job_id(record)}: {service} asked before its exec-hello was answered")
    if life is None:
        return None
    if life.held or asked_of(seen, job_id(record)).granted:
        return True
    text = f"job {job_id(record)}: started, but it has no alloc event without free"
    return Broken(text, is_missing=True)


def _owed_starts(seen: Seen) -> Iterable[Broken]:
    """Yield the jobs for which a start request is due, while there is a service."""
    link = link_of(seen)
    if not link.is_up:
        return
    lives: Mapping[Any, Life] = seen.all(LIFE)
    for job, life in lives.items():
        if life.state != RUN or not life.held or is_held(job, life, seen):
            continue
        log: Log | None = seen.at(LOG, job)
        start: Start | None = seen.at(STARTS, job)
        is_void = start is None or start.sent < link.lost
        if log and not log.prologs and is_void:
            text = f"job {job} is in RUN: expected a start request, none was sent"
            yield Broken(text, (life.held, link.accepted), job=job)


@RULES.judge("32.start.1", SENT, views=(LINK, STARTS, LIFE, LOG, HOOK_ANSWERS), debts=_owed_starts)
def every_job_that_is_due(record: Record, seen: Seen) -> Finding:
    life = seen.at(LIFE, job_id(record))
    return life is not None and life.state == RUN


@RULES.judge("32.start.9", SENT, views=(LOG, DOUBTS))
def reattach_is_for_what_should_still_run(record: Record, seen: Seen) -> Finding:
    log, reattach = seen.at(LOG, job_id(record)), payload(record).get("reattach")
    if log is None or not isinstance(reattach, bool):
        return None
    runs = bool(log.started and not log.finished)
    if reattach is runs:
        return True
    because = tuple(n for n in (log.started, log.finished) if n)
    if any(is_doubtful(seen, n) for n in because):
        return None
    has = f"{'a' if log.started else 'no'} start event and {'a' if log.finished else 'no'} finish"
    text = f"its eventlog has {has}: expected reattach {runs}, got {reattach}"
    return Broken(f"start request of job {job_id(record)}: {text}", because)


@RULES.judge("32.start.39", sent("request", topics.SCHED_FREE), views=(LINK, STARTS))
def nothing_is_freed_under_an_open_start(record: Record, seen: Seen) -> Finding:
    start = start_of(seen, record)
    if start is None or start.sent < link_of(seen).ended:
        return None
    if not is_open(start):
        return True
    text = "freed while its start request is open; expected the final release first"
    return Broken(f"job {job_id(record)}: {text}", (start.sent,))


# --- who talks to whom


@RULES.by(ASKING, "32.criteria.1", sent("request", ANY_TOPIC))
def execution_and_scheduling_keep_apart(asking: Asking, record: Record, seen: Seen) -> Finding:
    topic = asking.topic
    if not asking.role or topic.endswith(f".{topics.DISCONNECT}"):
        return None
    service = service_of(topic)
    if asking.role == "exec":
        if service != topics.SCHED:
            return True
        text = "the execution service talks to the job manager alone"
    elif seen.facts.exec_peer and service == seen.facts.exec_service:
        text = "the scheduler talks to the job manager, not to the execution service"
    else:
        return None
    return Broken(f"{text}: {record.party} sent {topic}")
