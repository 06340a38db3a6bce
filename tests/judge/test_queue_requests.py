"""33.admin.6 and 33.admin.7: a request to stop or start a queue counts when it is answered well."""

from __future__ import annotations

import pytest

from flux_trio.judge.rules import ALL_RULES
from flux_trio.messages import Errno, Request, Response, topics
from flux_trio.trace import Kind
from tests.support.judged import (
    Trace,
    cut,
    drop,
    edit_payload,
    find,
    find_all,
    insert,
    judge,
    made,
    move,
    texts_of,
)
from tests.support.scenarios import trace_of

GUEST = "guest-client"


def asked(
    trace: Trace, *, start: bool, before: int, errnum: int | None, name: str | None = None
) -> Trace:
    """Somebody asks to stop or start a queue, without `name` all of them; `errnum` is that of the
    answer, None: no answer.
    """
    content = {"name": name, "all": name is None, "start": start}
    request = made(GUEST, topics.JOB_MANAGER, Request(topics.JOB_QUEUE_START, content, 7))
    answer: Trace = []
    if errnum is not None:
        said = Response(topics.JOB_QUEUE_START, {}, errnum, 7, routes=(GUEST,))
        answer = made(topics.JOB_MANAGER, GUEST, said)
    for part in (answer, request):  # the later one first
        if part:
            trace = insert(trace, trace[before - 1], *part, before=True)
    return trace


def first_alloc(trace: Trace) -> int:
    return find(trace, topics.SCHED_ALLOC, "request").n


def test_jobs_of_a_queue_that_somebody_could_not_stop_are_asked_for() -> None:
    trace = trace_of("everyday")
    before = first_alloc(trace)
    refused = asked(trace, start=False, before=before, errnum=Errno.EPERM)
    assert texts_of(refused, "33.admin.7") == []
    (text, *_) = texts_of(asked(trace, start=False, before=before, errnum=0), "33.admin.7")
    assert "queue (anonymous) is stopped: expected no sched.alloc" in text


@pytest.mark.parametrize(
    ("errnum", "is_known"), [(Errno.EPERM, True), (None, False), (0, False), (Errno.EIO, False)]
)
def test_queue_that_somebody_could_not_start_is_stopped(errnum: int | None, is_known: bool) -> None:
    """While the request is not answered, or if its change was not stored, nobody knows."""
    trace = trace_of("queue_stopped")
    start = find(trace, topics.JOB_QUEUE_START, "request", start=True)
    alloc = next(
        each
        for each in trace[start.n :]
        if each.kind == "send" and getattr(each.message, "topic", "") == topics.SCHED_ALLOC
    )
    moved = move(trace, alloc, before=start)[: start.n]
    assert texts_of(moved, "33.admin.7")
    found = texts_of(asked(moved, start=True, before=start.n, errnum=errnum), "33.admin.7")
    assert bool(found) is is_known


def test_request_whose_queue_somebody_could_not_stop_stays_open() -> None:
    trace = trace_of("everyday")
    granted = find(trace, topics.SCHED_ALLOC, "response").n
    for errnum, expected in ((Errno.EPERM, False), (0, True)):
        said = asked(trace, start=False, before=granted, errnum=errnum)
        answered = find(said, topics.JOB_QUEUE_START, "response")
        monitor = judge(cut(said, said[answered.n]), ALL_RULES, cut=True)
        owed = [each for each in monitor.debts() if each.clause == "33.admin.6"]
        assert bool(owed) is expected


@pytest.mark.parametrize(
    ("errnum", "is_owed"), [(Errno.EPERM, True), (0, False), (Errno.EIO, False)]
)
def test_jobs_of_a_queue_that_is_stopped_for_this_run_only_need_not_be_asked_for(
    errnum: int, is_owed: bool
) -> None:
    """The change is in force, but could not be stored: the answer is an error."""
    trace = trace_of("everyday")
    said = asked(trace, start=False, before=first_alloc(trace), errnum=errnum)
    answered = find(said, topics.JOB_QUEUE_START, "response")
    monitor = judge(cut(said, said[answered.n]), ALL_RULES, cut=True)
    owed = [each for each in monitor.debts() if each.clause == "27.ready.6"]
    assert bool(owed) is is_owed


@pytest.mark.parametrize(
    ("asked_for", "is_stopped"),
    [
        ([("a", False)], True),
        ([("b", False)], False),
        ([("a", False), (None, True)], False),
        ([(None, False)], True),
        ([(None, False), ("a", True)], False),
        ([(None, False), ("b", True)], True),
        ([(None, False), ("a", True), ("a", False)], True),
        ([(None, False), (None, True)], False),
    ],
)
def test_all_queues_are_meant_where_the_trace_has_no_names(
    asked_for: list[tuple[str | None, bool]], is_stopped: bool
) -> None:
    """A trace that begins while the instance runs does not show which queues are configured."""
    whole = trace_of("everyday")
    trace = drop(whole, *(each for each in whole if each.kind == Kind.CONFIG))
    for alloc in find_all(trace, topics.SCHED_ALLOC, "request"):
        jobspec = alloc.message.payload["jobspec"]
        attributes = {"system": {**jobspec["attributes"]["system"], "queue": "a"}}
        trace = edit_payload(trace, alloc, jobspec={**jobspec, "attributes": attributes})
    for name, start in asked_for:
        trace = asked(trace, start=start, before=first_alloc(trace), errnum=0, name=name)
    found = texts_of(trace, "33.admin.7")
    assert bool(found) is is_stopped
