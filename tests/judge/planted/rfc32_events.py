"""Violations of RFC 32 by the job manager: what it logs of the execution service's answers."""

from __future__ import annotations

from typing import Any

from flux_trio.trace import Kind, Record
from tests.support.judged import Trace, drop, edit_note, find, find_event, insert, made_event
from tests.support.planted import Planted

PLANTED = Planted()


def turn(trace: Trace, event: Record) -> Trace:
    """The trace up to the last event of the turn of `event`."""
    return trace[: next(r.n for r in trace[event.n :] if r.kind != Kind.EVENT) - 1]


def not_logged(clause: str, name: str, nth: int) -> None:
    """The event is missing, in a trace that ends before the job is over."""

    def change(trace: Trace) -> Trace:
        event = find_event(trace, name, nth=nth)
        return drop(turn(trace, event), event)

    change.__name__ = f"{clause}: no {name} event"
    PLANTED.violation(clause, "execution_by_hand")(change)


def logged_otherwise(clause: str, name: str, nth: int, **context: Any) -> None:
    """The event says something else."""

    def change(trace: Trace) -> Trace:
        event = find_event(trace, name, nth=nth)
        changed = edit_note(trace, event, context={**event.data["context"], **context})
        return turn(changed, event)

    change.__name__ = f"{clause}: {name} event with {context}"
    cut = name != "exception"  # others may raise exceptions too
    PLANTED.violation(clause, "execution_by_hand", cut=cut)(change)


REMARK, FAILED = 0, 2  # the exceptions of the trace

not_logged("32.start.17", "start", 0)
not_logged("32.start.30", "finish", 0)
not_logged("32.start.23", "release", 0)
not_logged("32.start.24", "exception", REMARK)
not_logged("32.start.34", "exception", FAILED)
logged_otherwise("32.start.30", "finish", 0, status=0)
logged_otherwise("32.start.23", "release", 0, final=True)
logged_otherwise("32.start.23", "release", 0, ranks="0")
logged_otherwise("32.criteria.4", "release", 0, ranks="all", final=True)
logged_otherwise("32.start.24", "exception", REMARK, severity=0)
logged_otherwise("32.start.24", "exception", FAILED, type="cancel")
logged_otherwise("32.start.28", "exception", REMARK, note="")


@PLANTED.violation("32.start.17", "execution_by_hand")
def a_start_event_that_nobody_told_of(trace: Trace) -> Trace:
    alloc = find_event(trace, "alloc", nth=1)
    start = find(trace[alloc.n :], "sim-exec.start", "request")
    return insert(trace, start, made_event(alloc.data["id"], "start"))


@PLANTED.violation("32.start.30", "execution_by_hand")
def a_finish_event_that_nobody_told_of(trace: Trace) -> Trace:
    start = find_event(trace, "start")
    finish = made_event(start.data["id"], "finish", status=0)
    return insert(turn(trace, start), start, finish)
