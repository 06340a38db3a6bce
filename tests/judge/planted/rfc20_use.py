"""Violations of RFC 20 by those who use R."""

from __future__ import annotations

import functools
from typing import Any

from flux_trio.messages import Request, topics
from tests.judge.planted.rfc20_format import (
    Change,
    in_children,
    in_execution,
    with_grown,
    with_r,
    without,
)
from tests.support.judged import (
    Trace,
    crash,
    edit_note,
    edit_payload,
    find,
    find_event,
    insert,
    made,
    made_event,
)
from tests.support.planted import Planted, Violation

PLANTED = Planted()


@PLANTED.violation("20.overview.3", "everyday")
def a_core_that_was_never_acquired(trace: Trace) -> Trace:
    return with_r(trace, in_children(core="7"))


@PLANTED.violation("20.overview.3", "unusual_resources")
def a_gpu_that_was_never_acquired(trace: Trace) -> Trace:
    return with_r(trace, in_children(gpu="3"))


@PLANTED.violation("20.goals.3", "everyday")
def r_is_removed(trace: Trace) -> Trace:
    finish = find_event(trace, "finish")
    key = f"job.{_dothex(finish.data['id'])}.R"
    return insert(
        trace,
        finish,
        *made("sched", "kvs", Request(topics.KVS_COMMIT, {"ops": [["unlink", key]]}, flags=4)),
    )


def _dothex(jobid: int) -> str:
    digits = f"{jobid:016x}"
    return ".".join(digits[place : place + 4] for place in range(0, 16, 4))


@PLANTED.violation("20.expiration.2", "expiring")
def an_allocation_that_does_not_end(trace: Trace) -> Trace:
    return with_r(trace, in_execution(expiration=0.0), nth=2)


@PLANTED.violation("20.properties.6", "unusual_resources")
def only_the_bare_property_applies(trace: Trace) -> Trace:
    def change(r: dict[str, Any]) -> None:
        r["execution"]["R_lite"] = [{"rank": "0", "children": {"core": "1"}}]
        r["execution"]["nodelist"] = ["host0"]
        r["execution"].pop("properties", None)

    return with_r(trace, change, nth=1)


# --- odd R over which a scheduler falls


def falls_over(clause: str, change: Change) -> None:
    """The scheduler crashes when its first grow is changed so."""

    def fall(trace: Trace) -> Trace:
        hello = find(trace, topics.SCHED_HELLO, "request")
        return crash(with_grown(trace[: hello.n - 1], change), "sched", "resource")

    name = f"{clause}: crashed"
    PLANTED.all.append(Violation(name, clause, "everyday", fall, cut=True))


def odd(**keys: Any) -> Change:
    """An execution object that is odd in these keys alone."""
    return in_execution(starttime=1e9, **keys)


def with_scheduling(writer: bool, r: dict[str, Any]) -> dict[str, Any]:
    content = {"writer": "fluxion"} if writer else {"racks": {"a": "node0"}}
    return {**r, "execution": {**r["execution"], "starttime": 1e9}, "scheduling": content}


CORES = {"core": "0-1"}

falls_over(
    "20.format.5",
    odd(
        R_lite=[{"rank": "1", "children": CORES}, {"rank": "0", "children": CORES}],
        nodelist=["node0", "node1"],
    ),
)
falls_over("20.nodelist.4", odd(nodelist=["node0", "node1"]))
falls_over("20.properties.3", odd(properties={"a": "0", "b": "0-1"}))
falls_over("20.properties.8", odd(properties={"a@x": "0", "a": "1"}))
falls_over("20.starttime.2", in_execution(starttime=0))
falls_over("20.starttime.4", without("execution", "starttime"))
falls_over("20.goals.5", functools.partial(with_scheduling, False))
falls_over("20.scheduling.5", functools.partial(with_scheduling, True))


# --- scheduling and times


@PLANTED.violation("20.scheduling.6", "unusual_resources")
def scheduling_is_dropped(trace: Trace) -> Trace:
    acquired = find(trace, topics.RESOURCE_ACQUIRE, "response", type="grow", nth=-1)
    r = {k: v for k, v in acquired.message.payload["resources"].items() if k != "scheduling"}
    return edit_payload(trace, acquired, resources=r)


@PLANTED.violation("20.overview.5", "expiring")
def a_job_is_ended_before_its_new_expiration(trace: Trace) -> Trace:
    update = find_event(trace, "resource-update")
    later = update.data["context"]["expiration"] + 30
    return edit_note(trace, update, context={"expiration": later})


def _timeout_after_start(trace: Trace) -> Trace:
    start = find_event(trace, "start")
    context = {"type": "timeout", "severity": 0, "note": "", "userid": 1000}
    return insert(trace, start, made_event(start.data["id"], "exception", **context))


@PLANTED.violation("20.expiration.3", "everyday")
def a_job_whose_expiration_is_0_times_out(trace: Trace) -> Trace:
    return _timeout_after_start(trace)


@PLANTED.violation("20.expiration.6", "times_left_out")
def a_job_without_expiration_times_out(trace: Trace) -> Trace:
    return _timeout_after_start(trace)
