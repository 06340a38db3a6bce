"""Violations of RFC 21, State Descriptions and Exceptions."""

from __future__ import annotations

from typing import Any

from flux_trio.messages import topics
from flux_trio.trace import Kind, Record
from tests.support.judged import Trace, drop, find, find_event, insert, made_event
from tests.support.planted import Planted

PLANTED = Planted()


def until(trace: Trace, event: Record) -> Trace:
    """The trace up to the event."""
    return trace[: event.n]


def job_of(record: Record) -> int:
    """The job that an event is about."""
    return int(record.data["id"])


def again(trace: Trace, after: Record, name: str, **context: Any) -> Trace:
    """Another event of the job right after one of it; the trace ends there."""
    return insert(until(trace, after), after, made_event(job_of(after), name, **context))


@PLANTED.violation("21.states.1", "everyday", cut=True)
def validated_twice(trace: Trace) -> Trace:
    return again(trace, find_event(trace, "validate"), "validate")


@PLANTED.violation("21.states.2", "held_up", cut=True)
def depend_while_a_dependency_is_left(trace: Trace) -> Trace:
    removed = find_event(trace, "dependency-remove")
    return again(trace, removed, "depend")


@PLANTED.violation("21.states.2", "everyday", cut=True)
def depend_before_validate(trace: Trace) -> Trace:
    return again(trace, find_event(trace, "submit"), "depend")


@PLANTED.violation("21.states.3", "held_up", cut=True)
def priority_before_depend(trace: Trace) -> Trace:
    return again(trace, find_event(trace, "dependency-add"), "priority", priority=16)


@PLANTED.violation("21.states.4", "everyday", cut=True)
def alloc_before_a_priority(trace: Trace) -> Trace:
    return again(trace, find_event(trace, "depend"), "alloc")


@PLANTED.violation("21.states.5", "everyday", cut=True)
def finish_before_alloc(trace: Trace) -> Trace:
    return again(trace, find_event(trace, "priority"), "finish", status=0)


@PLANTED.violation("21.states.6", "everyday", cut=True)
def clean_before_free(trace: Trace) -> Trace:
    free = find_event(trace, "free")
    last = trace[free.n - 2]
    return insert(until(trace, last), last, made_event(job_of(free), "clean"))


@PLANTED.violation("21.states.6", "everyday", cut=True)
def free_while_it_runs(trace: Trace) -> Trace:
    return again(trace, find_event(trace, "start"), "free")


@PLANTED.violation("21.states.7", "everyday", cut=True)
def free_without_alloc(trace: Trace) -> Trace:
    """Of a job that was denied."""
    return again(trace, find_event(trace, "exception"), "free")


@PLANTED.violation("21.states.9", "updates", cut=True)
def alloc_by_the_priority_before_the_update(trace: Trace) -> Trace:
    update = find_event(trace, "jobspec-update", nth=1)
    return again(trace, update, "alloc")


@PLANTED.violation("21.criteria.6", "everyday", cut=True)
def alloc_is_asked_for_without_a_priority_event(trace: Trace) -> Trace:
    """The events are missing in the eventlog as well as in the trace."""
    asked = find(trace, topics.SCHED_ALLOC, "request")
    priority = find_event(trace, "priority", asked.message.payload["id"])
    return drop(trace[: asked.n], priority)


@PLANTED.violation("21.exceptions.2", "everyday", cut=True)
def alloc_after_a_fatal_exception(trace: Trace) -> Trace:
    return again(trace, find_event(trace, "exception"), "alloc")


@PLANTED.violation("21.exceptions.3", "execution_failures", cut=True)
def a_lesser_exception_ends_the_job(trace: Trace) -> Trace:
    raised = next(r for r in trace if r.kind == Kind.EVENT and severity(r) == 3)
    return again(trace, raised, "clean")


def severity(record: Record) -> int | None:
    """Of an exception event."""
    return (record.data or {}).get("context", {}).get("severity")


@PLANTED.violation("21.sync.1", "everyday", cut=True)
def clean_without_finish_and_exception(trace: Trace) -> Trace:
    return again(trace, find_event(trace, "priority"), "clean")
