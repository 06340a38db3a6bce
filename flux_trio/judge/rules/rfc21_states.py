"""RFC 21, State Descriptions and Exceptions: which events may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flux_trio.judge.engine.rule import Broken, Finding, Rules
from flux_trio.judge.engine.selector import job_id, logged, name_of, sent, topic_of
from flux_trio.judge.engine.view import Seen
from flux_trio.judge.views import execution
from flux_trio.judge.views.durable import DURABLE, is_durable
from flux_trio.judge.views.eventlogs import LOG, LOGGING, Log, Logging, broken_event, log_of
from flux_trio.judge.views.jobs import (
    CLEANUP,
    DEPEND,
    LIFE,
    NEW,
    ORDER,
    PRIORITY,
    RUN,
    SCHED,
    JobState,
    Life,
    is_fatal,
    is_late,
)
from flux_trio.judge.views.scheduling import ASKED, asked_of, gives_late_grant_back
from flux_trio.messages import topics
from flux_trio.trace import Record

RULES: Final = Rules()


def _life(record: Record, seen: Seen) -> Life:
    """Return the life of an active job."""
    life: Life = seen.states[LIFE][job_id(record)]
    return life


def _log(record: Record, seen: Seen) -> Log:
    """Return the log of a job that has one."""
    log = log_of(record, seen)
    assert log is not None
    return log


# --- the states of each event


def missing(record: Record, seen: Seen, name: str) -> Broken | None:
    """Return a violation if this event comes in the state that the event `name` would end."""
    life = _life(record, seen)
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

    @RULES.by(LOGGING, clause, logged(*places, *later), views=(LIFE,))
    def judge(logging: Logging, record: Record, seen: Seen) -> Finding:
        if not logging.state:
            return None
        if logging.name in later:
            return missing(record, seen, name) if logging.state == ended else None
        expected = places[logging.name]
        if logging.state in expected:
            return True
        words = " or ".join(expected)
        text = f"expected in {words}, came in {logging.state}"
        return broken_event(record, text, _life(record, seen).since)


ONWARD: Final = ("validate", "depend", "priority", "alloc", "start", "finish")
"""The events that move a job onward, in their order."""

_require_state("21.states.1", {"validate": (NEW,)}, NEW)
_require_state("21.states.3", {"priority": (PRIORITY, SCHED)}, PRIORITY)
_require_state("21.states.4", {"alloc": (SCHED,)}, SCHED)


@RULES.by(LOGGING, "21.states.5", logged("start", "finish"), views=(LIFE, LOG))
def start_then_finish(logging: Logging, record: Record, seen: Seen) -> Finding:
    """Each of start and finish comes once, in this order. One of them may be left out after a fatal
    exception.
    """
    if not logging.state or not logging.has_log:
        return None
    if logging.state not in (RUN, CLEANUP):
        text = f"expected in RUN or CLEANUP, came in {logging.state}"
        return broken_event(record, text, _life(record, seen).since)
    if logging.name == "start":
        if logging.has_finished:
            text = "expected before the finish event"
            return broken_event(record, text, _log(record, seen).finished)
    elif not logging.has_started and not logging.has_failed:
        text = "expected a start event before it"
        return broken_event(record, text, _life(record, seen).since, is_missing=True)
    elif logging.has_released and not logging.has_failed:
        text = "expected before the final release event"
        return broken_event(record, text, _log(record, seen).released)
    return True


@RULES.by(LOGGING, "21.states.2", logged("depend", *ONWARD[2:]), views=(LIFE, LOG))
def depend_when_nothing_is_left(logging: Logging, record: Record, seen: Seen) -> Finding:
    if not logging.state or not logging.has_log:
        return None
    if logging.name != "depend":
        return missing(record, seen, "depend") if logging.state == DEPEND else None
    if logging.state != DEPEND:
        text = f"expected in DEPEND, came in {logging.state}"
        return broken_event(record, text, _life(record, seen).since)
    if logging.is_waiting:
        (left, added), *_ = _log(record, seen).dependencies
        return broken_event(record, f"dependency {left} is not removed", added)
    return True


_SERVICE_GONE: Final = ", and the service that had started the job has disconnected"


@RULES.by(
    LOGGING, "21.states.6", logged("clean", "free", "release"), views=(LIFE, LOG, execution.LINK)
)
def everything_is_back_before_clean(logging: Logging, record: Record, seen: Seen) -> Finding:
    if not logging.state or not logging.has_log:
        return None
    name = logging.name
    expected = (RUN, CLEANUP) if name == "release" else (CLEANUP,)
    if logging.state not in expected:
        text = f"expected in {' or '.join(expected)}, came in {logging.state}"
        return broken_event(record, text, _life(record, seen).since)
    if name == "clean" and logging.is_held:
        text = "expected after free, since the job holds resources"
        return broken_event(record, text, _life(record, seen).held)
    if name != "clean" and logging.is_freed:
        text = "expected nothing but clean after the free event"
        return broken_event(record, text, _life(record, seen).since)
    if name == "free" and logging.has_started and not logging.has_released:
        if not seen.facts.has_begun("exec"):
            return None  # nobody knows who has started the job, and whether that is there
        log = _log(record, seen)
        started = log.started
        is_gone = execution.link_of(seen).disconnected > started
        text = "expected a final release event first" + _SERVICE_GONE * is_gone
        if is_gone and (log.fatal or log.finished):
            text += f", and the job had {'a fatal exception' if log.fatal else 'finished'}"
        return broken_event(record, text, started, is_missing=True)
    return True


@RULES.by(LOGGING, "21.states.7", logged("release", "free", "clean"), views=(LIFE,))
def no_step_that_does_not_apply(logging: Logging, record: Record, seen: Seen) -> Finding:
    if not logging.state:
        return None
    if logging.name == "clean":
        return not logging.is_held and not logging.is_freed
    if logging.is_held or logging.is_freed:
        return True
    text = "expected none, since nothing was allocated"
    return broken_event(record, text, _life(record, seen).since)


@RULES.by(LOGGING, "21.states.9", logged("priority", "alloc"), views=(LIFE,))
def back_to_priority_means_a_new_priority(logging: Logging, record: Record, seen: Seen) -> Finding:
    if logging.state != PRIORITY or not logging.is_prioritized:
        return None
    if logging.name == "priority":
        return True
    return broken_event(record, "expected a new priority event first", _life(record, seen).since)


# --- what the job manager does is of the state that the eventlog tells

ACTS: Final = {
    topics.SCHED_ALLOC: (SCHED,),
    topics.SCHED_FREE: (CLEANUP,),
    "<exec>.start": (RUN, CLEANUP),
}


@RULES.judge(
    "21.criteria.6", sent("request", *ACTS), views=(LIFE, DURABLE, ASKED), needs_crossing=True
)
def no_transition_without_an_event(record: Record, seen: Seen) -> Finding:
    topic = topic_of(record)
    life: Life | None = seen.states[LIFE].get(job_id(record))
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
"""The events of a job that is on its way to RUN, or in it."""


@RULES.by(LOGGING, "21.exceptions.2", logged(*TO_RUN, "exception"), views=(LOG,))
def nothing_goes_on_after_a_fatal_exception(
    logging: Logging, record: Record, seen: Seen
) -> Finding:
    if logging.name == "exception":
        return is_fatal(record) and logging.has_log
    if not logging.has_failed:
        return None
    text = "expected none after an exception of severity 0"
    return broken_event(record, text, _log(record, seen).fatal)


@RULES.by(LOGGING, "21.sync.1", logged("free", "clean"), views=(LOG,))
def a_status_or_an_exception_before_cleanup(
    logging: Logging, record: Record, seen: Seen
) -> Finding:
    if not logging.has_log or logging.has_ended:
        return None
    if logging.has_finished or logging.has_failed:
        return True
    text = "neither a finish event nor an exception says why"
    return broken_event(record, text, _log(record, seen).submitted)


@RULES.by(LOGGING, "21.exceptions.3", logged("free", "clean"), views=(LOG,))
def lesser_exceptions_end_nothing(logging: Logging, record: Record, seen: Seen) -> Finding:
    if not logging.has_excepted or logging.has_failed:
        return None
    if logging.has_finished:
        return True
    text = "no finish event and no exception of severity 0, lesser ones do not end a job"
    return broken_event(record, text, _log(record, seen).excepted)
