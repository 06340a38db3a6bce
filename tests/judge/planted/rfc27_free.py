"""Violations of RFC 27, Free."""

from __future__ import annotations

from flux_trio.messages import topics
from tests.judge.planted.rfc27_impl import more
from tests.support.judged import Trace, cut_before, drop, find, find_event, move
from tests.support.planted import Planted

PLANTED = Planted()
FREE = topics.SCHED_FREE


@PLANTED.violation("27.free.1", "everyday")
def resources_are_kept(trace: Trace) -> Trace:
    return cut_before(trace, find(trace, FREE, "request"))


@PLANTED.violation("27.free.1", "everyday")
def clean_with_resources(trace: Trace) -> Trace:
    return drop(trace, find_event(trace, "free"))


@PLANTED.violation("27.free.2", "everyday")
def id_is_text(trace: Trace) -> Trace:
    return more(trace, find(trace, FREE, "request"), payload={"id": "f1"})


@PLANTED.violation("27.free.6", "everyday")
def free_is_not_answered(trace: Trace) -> Trace:
    return cut_before(trace, find(trace, FREE, "response"))


@PLANTED.violation("27.free.6", "everyday")
def answer_without_payload(trace: Trace) -> Trace:
    return more(trace, find(trace, FREE, "response"), payload=None)


@PLANTED.violation("27.free.7", "everyday")
def answer_with_an_id_of_text(trace: Trace) -> Trace:
    return more(trace, find(trace, FREE, "response"), payload={"id": "f1"})


@PLANTED.violation("27.free.9", "everyday")
def free_event_before_the_answer(trace: Trace) -> Trace:
    return move(trace, find_event(trace, "free"), before=find(trace, FREE, "response"))
