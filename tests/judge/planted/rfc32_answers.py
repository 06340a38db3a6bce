"""Violations of RFC 32, Start Request, by the execution service."""

from __future__ import annotations

from typing import Any

from flux_trio.messages import Response
from flux_trio.trace import Record
from tests.support.judged import (
    REMOVED,
    Trace,
    drop,
    duplicate,
    edit,
    edit_payload,
    find,
    insert,
    made,
    receipt,
)
from tests.support.planted import Change, Planted

PLANTED = Planted()

START = "job-exec.start"


def said(trace: Trace, kind: str, nth: int = 0, topic: str = START) -> Record:
    """An answer of a type."""
    return find(trace, topic, "response", nth=nth, type=kind)


def started(trace: Trace) -> Record:
    """That a job has started."""
    return said(trace, "start")


PLANTED.bad_key("32.impl.3", "everyday", started, "id", last=True)
PLANTED.bad_key("32.start.13", "everyday", started, "id", ["1", None], last=True)
PLANTED.bad_key("32.start.14", "everyday", started, "type", [REMOVED, 1], last=True)
PLANTED.bad_key("32.start.15", "everyday", started, "data", [REMOVED, None, "{}"], last=True)
PLANTED.bad_key("32.start.16", "everyday", started, "type", ["started", "alloc"], last=True)
PLANTED.bad_key("32.start.18", "everyday", started, "data", [{"pid": 7}], last=True)


def bad_data(clause: str, scenario: str, kind: str, key: str, *values: Any, topic: str) -> None:
    """One violation a value: the first answer of the type has it for `key` of its data."""
    for value in values:

        def change(trace: Trace, value: Any = value) -> Trace:
            answer = said(trace, kind, topic=topic)
            data = {**answer.message.payload["data"], key: value}
            if value is REMOVED:
                del data[key]
            return edit_payload(trace, answer, data=data)[: answer.n]

        change.__name__ = f"{clause}: data {'without' if value is REMOVED else value!r} {key}"
        PLANTED.violation(clause, scenario, cut=True)(change)


FAILS = ("execution_failures", "exception")
bad_data("32.start.25", *FAILS, "severity", REMOVED, "0", 8, -1, topic=START)
bad_data("32.start.26", *FAILS, "type", REMOVED, 0, topic=START)
bad_data("32.start.27", *FAILS, "note", 0, None, topic=START)
bad_data("32.start.31", "everyday", "finish", "status", REMOVED, "0", 0.5, topic=START)
bad_data("32.start.20", "everyday", "release", "ranks", REMOVED, "", "all", 0, "0-9", topic=START)
bad_data("32.start.21", "everyday", "release", "final", REMOVED, 1, None, topic=START)
bad_data("32.start.21", "execution_by_hand", "release", "final", True, topic="sim-exec.start")


@PLANTED.violation("32.start.12", "everyday", cut=True)
def an_answer_without_an_object(trace: Trace) -> Trace:
    return edit(trace, started(trace), payload="start")[: started(trace).n]


@PLANTED.violation("32.impl.5", "execution_failures", cut=True)
def a_problem_is_an_error(trace: Trace) -> Trace:
    return edit(trace, said(trace, "exception"), errnum=5)[: said(trace, "exception").n]


@PLANTED.violation("32.background.1", "everyday")
def a_job_starts_that_nobody_asked_for(trace: Trace) -> Trace:
    return unasked("start")(trace)


@PLANTED.violation("32.start.3", "everyday")
def a_job_finishes_that_nobody_asked_for(trace: Trace) -> Trace:
    return unasked("finish")(trace)


def unasked(kind: str) -> Change:
    """An answer about a job that was never started."""
    payload = {"id": 7, "type": kind, "data": {"status": 0} if kind == "finish" else {}}

    def change(trace: Trace) -> Trace:
        after = receipt(trace, find(trace, START, "request"))
        return insert(trace, after, *made("job-exec", "job-manager", Response(START, payload)))

    return change


@PLANTED.violation("32.start.37", "everyday")
def an_answer_after_the_final_release(trace: Trace) -> Trace:
    return duplicate(trace, said(trace, "finish"), after=said(trace, "release"))


@PLANTED.violation("32.start.37", "everyday")
def two_final_releases(trace: Trace) -> Trace:
    return duplicate(trace, said(trace, "release"))


def released_without(trace: Trace, *kinds: str, topic: str = START) -> Trace:
    """The first job is released without these answers; the trace ends with the release."""
    end = said(trace, "release", topic=topic)
    jobid = end.message.payload["id"]
    answers = [find(trace, topic, "response", id=jobid, type=kind) for kind in kinds]
    events = [r for r in trace[: end.n] if r.data and r.data.get("id") == jobid]
    logged = [r for r in events if r.data.get("name") in kinds]
    return drop(trace[: end.n], *answers, *logged)


@PLANTED.violation("32.start.35", "everyday", cut=True)
def no_start_and_no_fatal_exception(trace: Trace) -> Trace:
    return released_without(trace, "start")


@PLANTED.violation("32.criteria.5", "everyday", cut=True)
def no_finish_and_no_fatal_exception(trace: Trace) -> Trace:
    return released_without(trace, "finish")


@PLANTED.violation("32.criteria.3", "everyday", cut=True)
def neither_start_nor_finish_nor_fatal_exception(trace: Trace) -> Trace:
    return released_without(trace, "start", "finish")


@PLANTED.violation("32.start.10", "execution_reload", cut=True)
def a_reattached_job_has_no_result(trace: Trace) -> Trace:
    again = find(trace, START, "request", reattach=True)
    jobid = again.message.payload["id"]
    finish = find(trace, START, "response", id=jobid, type="finish")
    end = find(trace, START, "response", id=jobid, type="release")
    return drop(trace[: end.n], finish)


@PLANTED.violation("32.start.36", "everyday")
def no_final_release_after_finish(trace: Trace) -> Trace:
    release = said(trace, "release")
    return drop(trace[: release.n], release)


@PLANTED.violation("32.start.36", "execution_failures")
def no_final_release_after_a_failed_launch(trace: Trace) -> Trace:
    release = said(trace, "release")
    return drop(trace[: release.n], release)
