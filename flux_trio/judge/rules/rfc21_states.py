"""RFC 21, State Descriptions and Exceptions: which events may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flux_trio.judge.engine.rule import Broken, Rules, Said, Seen, job_id, logged, sent
from flux_trio.judge.engine.selector import name_of, topic_of
from flux_trio.judge.engine.view import seen_once
from flux_trio.judge.views.eventlogs import LOG, broken_event, log_of
from flux_trio.judge.views.jobs import (
    DURABLE,
    LIFE,
    ORDER,
    JobState,
    Life,
    is_durable,
    is_fatal,
    is_late,
)
from flux_trio.judge.views.scheduling import ASKED, asked_of, gives_late_grant_back
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()

NEW, DEPEND, PRIORITY, SCHED = JobState.NEW, JobState.DEPEND, JobState.PRIORITY, JobState.SCHED
RUN, CLEANUP = JobState.RUN, JobState.CLEANUP


@seen_once
def _life(record: Record, seen: Seen) -> Life | None:
    life: Life | None = seen.states[LIFE].get(job_id(record))
    return life


# --- the states of each event


def missing(record: Record, life: Life, name: str) -> Broken | None:
    """Return a violation if this event comes in the state that the event `name` would end."""
    if not is_late(life.state, name_of(record)):
        return None
    text = f"expected a {name} event first, since it is in {life.state}"
    return broken_event(record, text, life.since, is_missing=True)


def _require_state(
    clause: str, places: Mapping[str, tuple[JobState, ...]], ended: JobState | None = None
) -> None:
    """`clause`: each of these events is logged in one of these states.

    The first of them ends the state `ended`: an event of a later state comes after it.
    """
    name = next(iter(places))
    later = ONWARD[ONWARD.index(name) + 1 :] if ended else ()

    @RULES.judge(clause, logged(*places, *later), views=(LIFE,))
    def judge(record: Record, seen: Seen) -> Said:
        life = _life(record, seen)
        if life is None:
            return None
        if name_of(record) in later:
            return missing(record, life, name) if life.state == ended else None
        expected = places[name_of(record)]
        if life.state in expected:
            return True
        words = " or ".join(expected)
        return broken_event(record, f"expected in {words}, came in {life.state}", life.since)


ONWARD: Final = ("validate", "depend", "priority", "alloc", "start", "finish")
"""The events that move a job onward, in their order."""

_require_state("21.states.1", {"validate": (NEW,)}, NEW)
_require_state("21.states.3", {"priority": (PRIORITY, SCHED)}, PRIORITY)
_require_state("21.states.4", {"alloc": (SCHED,)}, SCHED)


@RULES.judge("21.states.5", logged("start", "finish"), views=(LIFE, LOG))
def start_then_finish(record: Record, seen: Seen) -> Said:
    """One of them may be left out after a fatal exception."""
    life, log = _life(record, seen), log_of(record, seen)
    if life is None or log is None:
        return None
    if life.state not in (RUN, CLEANUP):
        return broken_event(record, f"expected in RUN or CLEANUP, came in {life.state}", life.since)
    if name_of(record) == "start":
        if log.finished:
            return broken_event(record, "expected before the finish event", log.finished)
    elif not log.started and not log.fatal:
        text = "expected a start event before it"
        return broken_event(record, text, life.since, is_missing=True)
    elif log.released and not log.fatal:
        return broken_event(record, "expected before the final release event", log.released)
    return True


@RULES.judge("21.states.2", logged("depend", *ONWARD[2:]), views=(LIFE, LOG))
def depend_when_nothing_is_left(record: Record, seen: Seen) -> Said:
    life, log = _life(record, seen), log_of(record, seen)
    if life is None or log is None:
        return None
    if name_of(record) != "depend":
        return missing(record, life, "depend") if life.state == DEPEND else None
    if life.state != DEPEND:
        return broken_event(record, f"expected in DEPEND, came in {life.state}", life.since)
    if log.dependencies:
        (left, added), *_ = log.dependencies
        return broken_event(record, f"dependency {left} is not removed", added)
    return True


@RULES.judge("21.states.6", logged("clean", "free", "release"), views=(LIFE, LOG))
def everything_is_back_before_clean(record: Record, seen: Seen) -> Said:
    life, log, name = _life(record, seen), log_of(record, seen), name_of(record)
    if life is None or log is None:
        return None
    expected = (RUN, CLEANUP) if name == "release" else (CLEANUP,)
    if life.state not in expected:
        words = " or ".join(expected)
        return broken_event(record, f"expected in {words}, came in {life.state}", life.since)
    if name == "clean" and life.held:
        return broken_event(record, "expected after free, since the job holds resources", life.held)
    if name != "clean" and life.frees:
        return broken_event(record, "expected nothing but clean after the free event", life.since)
    if name == "free" and log.started and not log.released:
        text = "expected a final release event first"
        return broken_event(record, text, log.started, is_missing=True)
    return True


@RULES.judge("21.states.7", logged("release", "free", "clean"), views=(LIFE,))
def no_step_that_does_not_apply(record: Record, seen: Seen) -> Said:
    life = _life(record, seen)
    if life is None:
        return None
    if name_of(record) == "clean":
        return not life.held and not life.frees
    if life.held or life.frees:
        return True
    return broken_event(record, "expected none, since nothing was allocated", life.since)


@RULES.judge("21.states.9", logged("priority", "alloc"), views=(LIFE,))
def back_to_priority_means_a_new_priority(record: Record, seen: Seen) -> Said:
    life = _life(record, seen)
    if life is None or life.state != PRIORITY or not life.prioritized:
        return None
    if name_of(record) == "priority":
        return True
    return broken_event(record, "expected a new priority event first", life.since)


# --- what the job manager does is of the state that the eventlog tells

ACTS: Final = {
    topics.SCHED_ALLOC: (SCHED,),
    topics.SCHED_FREE: (CLEANUP,),
    "<exec>.start": (RUN, CLEANUP),
}


@RULES.judge(
    "21.criteria.6", sent("request", *ACTS), views=(LIFE, DURABLE, ASKED), needs_crossing=True
)
def no_transition_without_an_event(record: Record, seen: Seen) -> Said:
    life, topic = _life(record, seen), topic_of(record)
    if life is None or not is_durable(seen, record.party, life.since):
        return None  # may have been sent on its way before
    expected = ACTS.get(topic, ACTS["<exec>.start"])
    if life.state in expected:
        return True
    asked = asked_of(seen, job_id(record))
    if topic == topics.SCHED_FREE and gives_late_grant_back(asked, life):
        return None
    words = " or ".join(expected)
    text = f"{topic} request: expected in {words}; by its eventlog it is in {life.state}"
    is_early = ORDER.index(life.state) < ORDER.index(expected[0])
    return Broken(f"job {job_id(record)}: {text}", (life.since,), is_missing=is_early)


# --- exceptions

TO_RUN: Final = ("validate", "depend", "priority", "alloc", "prolog-start")
"""Events of a job that is on its way to run."""


@RULES.judge("21.exceptions.2", logged(*TO_RUN, "exception"), views=(LOG,))
def nothing_goes_on_after_a_fatal_exception(record: Record, seen: Seen) -> Said:
    log = log_of(record, seen)
    if name_of(record) == "exception":
        return is_fatal(record) and log is not None
    if log is None or not log.fatal:
        return None
    return broken_event(record, "expected none after an exception of severity 0", log.fatal)


@RULES.judge("21.sync.1", logged("free", "clean"), views=(LOG,))
def a_status_or_an_exception_before_cleanup(record: Record, seen: Seen) -> Said:
    log = log_of(record, seen)
    if log is None or log.ended:
        return None
    if log.finished or log.fatal:
        return True
    return broken_event(record, "neither a finish event nor an exception says why", log.submitted)


@RULES.judge("21.exceptions.3", logged("free", "clean"), views=(LOG,))
def lesser_exceptions_end_nothing(record: Record, seen: Seen) -> Said:
    log = log_of(record, seen)
    if log is None or not log.excepted or log.fatal:
        return None
    if log.finished:
        return True
    text = "no finish event and no exception of severity 0, lesser ones do not end a job"
    return broken_event(record, text, log.excepted)
