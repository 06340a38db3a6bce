"""Violations of RFC 28 by the scheduler."""

from __future__ import annotations

import functools
from typing import Any

from flux_trio.messages import Request, Response, topics
from flux_trio.trace import Record
from tests.judge.planted.rfc20_format import commits_of_r, with_r
from tests.support.judged import (
    REMOVED,
    Trace,
    drop,
    duplicate,
    edit,
    edit_payload,
    find,
    find_event,
    insert,
    made,
    move,
)
from tests.support.planted import Planted

PLANTED = Planted()


def told(trace: Trace, type_: str, nth: int = 0) -> Record:
    """A response to resource.acquire."""
    return find(trace, topics.RESOURCE_ACQUIRE, "response", type=type_, nth=nth)


def released(trace: Trace) -> Record:
    """The first release."""
    return find(trace, topics.RESOURCE_RELEASE, "request")


def on_rank(rank: int) -> Any:
    """R is on that node."""

    def change(r: dict[str, Any]) -> None:
        r["execution"]["R_lite"][0]["rank"] = str(rank)
        r["execution"]["nodelist"] = [f"node{rank}"]

    return change


PLANTED.bad_key("28.release.2", "excludes", released, "group", [REMOVED, 0])
PLANTED.bad_key("28.release.3", "excludes", released, "targets", [REMOVED, ["0"], "a"])


@PLANTED.violation("28.release.2", "excludes")
def a_release_has_no_payload(trace: Trace) -> Trace:
    return edit(trace, released(trace), payload=None)


PLANTED.bad_key("28.release.5", "excludes", released, "group", ["exclude"])
PLANTED.bad_key("28.release.6", "excludes", released, "targets", ["0-1"])


@PLANTED.violation("28.impl.1", "scheduler_reload")
def a_scheduler_that_has_not_acquired(trace: Trace) -> Trace:
    return drop(trace, find(trace, topics.RESOURCE_ACQUIRE, "request", nth=1))


@PLANTED.violation("28.impl.1", "everyday")
def a_scheduler_that_acquires_without_the_flag(trace: Trace) -> Trace:
    return edit(trace, find(trace, topics.RESOURCE_ACQUIRE, "request"), flags=0)


@PLANTED.violation("28.grow.7", "everyday")
def a_job_is_denied_before_the_first_grow(trace: Trace) -> Trace:
    deny = find(trace, topics.SCHED_ALLOC, "response", type=2)
    return move(trace, told(trace, "grow"), after=deny)


@PLANTED.violation("28.shrink.3", "excludes")
def a_shrunk_target_is_allocated(trace: Trace) -> Trace:
    shrink = told(trace, "shrink")
    later = [each for each, _ in commits_of_r(trace)]
    nth = next(place for place, each in enumerate(later) if each.n > shrink.n)
    return with_r(trace, on_rank(0), nth)


@PLANTED.violation("28.offline.3", "drains")
def an_offline_target_is_allocated(trace: Trace) -> Trace:
    return with_r(trace, on_rank(0), nth=2)


@PLANTED.violation("28.offline.3", "drains")
def the_first_allocation_after_a_drain_is_offline(trace: Trace) -> Trace:
    return with_r(trace, on_rank(0), nth=1)


@PLANTED.violation("28.shrink.4", "excludes")
def a_job_on_shrunk_targets_gets_no_exception(trace: Trace) -> Trace:
    jobid = find(trace, topics.JOB_RAISE, "request").message.payload["id"]
    return drop(trace, find_event(trace, "exception", jobid))


def _freed(trace: Trace) -> Record:
    """The answer to the free of the job that lost its node."""
    jobid = find(trace, topics.JOB_RAISE, "request").message.payload["id"]
    return find(trace, topics.SCHED_FREE, "response", id=jobid)


@PLANTED.violation("28.shrink.5", "excludes")
def free_of_shrunk_targets_is_an_error(trace: Trace) -> Trace:
    return edit(trace, _freed(trace), errnum=22, payload="no such node")


@PLANTED.violation("28.shrink.5", "excludes")
def free_of_shrunk_targets_is_not_answered(trace: Trace) -> Trace:
    return drop(trace, _freed(trace))


@PLANTED.violation("28.shrink.6", "excludes")
def targets_are_released_under_a_job(trace: Trace) -> Trace:
    return move(trace, released(trace), after=told(trace, "shrink"))


@PLANTED.violation("28.shrink.7", "excludes")
def a_job_that_can_never_run_stays(trace: Trace) -> Trace:
    deny = find(trace, topics.SCHED_ALLOC, "response", type=2)
    return drop(trace[: deny.n + 4], deny)


@PLANTED.violation("28.criteria.3", "drains")
def a_job_is_denied_for_offline_targets(trace: Trace) -> Trace:
    offline = told(trace, "offline")
    success = next(
        each for each in _answers(trace) if each.n > offline.n and not each.message.payload["type"]
    )
    return edit_payload(trace, success, type=2, note="a node is down", annotations=REMOVED)


def _answers(trace: Trace) -> Trace:
    sent = [each for each in trace if each.kind == "send" and isinstance(each.message, Response)]
    return [each for each in sent if each.message.topic == topics.SCHED_ALLOC]


@PLANTED.violation("28.offline.4", "drains")
def a_job_on_offline_targets_gets_an_exception(trace: Trace) -> Trace:
    jobid = find(trace, topics.SCHED_ALLOC, "request").message.payload["id"]
    payload = {"id": jobid, "type": "offline", "severity": 1, "note": "its node is down"}
    request = Request(topics.JOB_RAISE, payload, flags=4)
    return insert(trace, told(trace, "offline"), *made("sched", "job-manager", request))


@PLANTED.violation("28.offline.4", "failing_nodes")
def the_scheduler_raises_for_a_node_that_has_failed(trace: Trace) -> Trace:
    """That is for the execution service to do."""
    jobid = find(trace, topics.SCHED_ALLOC, "request").message.payload["id"]
    payload = {"id": jobid, "type": "offline", "severity": 0, "note": "its node is down"}
    request = Request(topics.JOB_RAISE, payload, flags=4)
    return insert(trace, told(trace, "offline"), *made("sched", "job-manager", request))


@PLANTED.violation("28.offline.5", "drains")
def offline_targets_are_not_freed(trace: Trace) -> Trace:
    first = find(trace, topics.SCHED_ALLOC, "request").message.payload["id"]
    return drop(trace, find(trace, topics.SCHED_FREE, "request", id=first))


@PLANTED.violation("28.release.1", "excludes")
def shrunk_targets_are_not_released(trace: Trace) -> Trace:
    last = find(trace, topics.RESOURCE_RELEASE, "request", nth=-1)
    answer = find(trace, topics.RESOURCE_RELEASE, "response", nth=-1)
    return drop(trace, last, answer)


@PLANTED.violation("28.release.1", "excludes")
def shrunk_targets_are_released_twice(trace: Trace) -> Trace:
    return duplicate(trace, released(trace))


@PLANTED.violation("28.release.7", "everyday")
def targets_are_released_that_were_not_shrunk(trace: Trace) -> Trace:
    free = find(trace, topics.SCHED_FREE, "request")
    payload = {"group": "default", "targets": "0"}
    request = Request(topics.RESOURCE_RELEASE, payload, flags=4)
    return insert(trace, free, *made("sched", "resource", request))


release_answer = functools.partial(find, topic=topics.RESOURCE_RELEASE, type_="response")


@PLANTED.violation("28.release.8", "excludes")
def the_answer_to_release_has_a_payload(trace: Trace) -> Trace:
    return edit(trace, release_answer(trace), payload={"targets": "0"})


@PLANTED.violation("28.release.4", "excludes")
def a_release_in_order_is_refused(trace: Trace) -> Trace:
    return edit(trace, release_answer(trace), errnum=71, payload="not shrunk")
