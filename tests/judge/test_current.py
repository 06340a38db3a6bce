"""Clauses as the current edition has them: violations planted in what real flux-core said."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from flux_trio.judge import judge_trace, load_clauses
from flux_trio.judge.rules import ALL_RULES, CURRENT_RULES
from flux_trio.trace import read_trace
from tests.support.recorded import RecordingJson, broken, first, judged, messages, recording

LIFECYCLE, RELOAD, DRAIN, DOWN, NODES = "01", "14", "20", "21", "22"
QUEUE = "n05"
INFEASIBLE = "07"
RAISE = "job-manager.raise"
REATTACH, PARTS, DISABLED, UPDATE = "24", "30", "32", "40"

Change = Callable[[RecordingJson], Any]
PLANTED: list[tuple[str, str, str, Change, bool]] = []


def planted(clause: str, number: str, *, owed: bool = False) -> Callable[[Change], Change]:
    """Register a function that changes a recording so that it breaks the clause.

    One that is `owed` shows at the end of the trace.
    """

    def register(change: Change) -> Change:
        PLANTED.append((f"{clause}: {change.__name__}", clause, number, change, owed))
        return change

    return register


def success(told: RecordingJson, nth: int = 0) -> Any:
    return messages(told, "sched.alloc", "response", type=0)[nth]["payload"]


def acquired(told: RecordingJson, nth: int = 0) -> Any:
    return messages(told, "resource.acquire", "response")[nth]["payload"]


def start(told: RecordingJson) -> Any:
    return first(told, "job-exec.start", "request")


def free(told: RecordingJson) -> Any:
    return first(told, "sched.free", "request")


# --- resources


@planted("invariant.no-double-allocation", NODES)
def two_running_jobs_on_one_core(told: RecordingJson) -> None:
    given, other = success(told)["R"], success(told, 1)["R"]
    other["execution"].update(R_lite=given["execution"]["R_lite"])
    other["execution"].update(nodelist=given["execution"]["nodelist"])


@planted("invariant.no-double-allocation", PARTS)
def a_node_that_was_not_freed_with_the_first_part(told: RecordingJson) -> None:
    """The next job of all nodes gets them when the first of them is free."""
    part = messages(told, "sched.free", "request", final=False)[0]
    granted = messages(told, "sched.alloc", "response", type=0)[1]
    told["messages"].remove(granted)
    at = told["messages"].index(part) + 1
    told["messages"].insert(at, granted | {"t_rel": part["t_rel"]})


@planted("25.resources.7", LIFECYCLE)
def more_cores_than_asked_for(told: RecordingJson) -> None:
    success(told)["R"]["execution"]["R_lite"][0]["children"]["core"] = "0-1"


@planted("25.resources.7", NODES)
def fewer_cores_than_asked_for(told: RecordingJson) -> None:
    most = max(
        (each["payload"] for each in messages(told, "sched.alloc", "response", type=0)),
        key=lambda payload: len(str(payload["R"])),
    )
    most["R"]["execution"]["R_lite"][0]["children"]["core"] = "0"


@planted("20.nslots.3", LIFECYCLE)
def nslots_is_missing(told: RecordingJson) -> None:
    del success(told)["R"]["execution"]["nslots"]


@planted("20.overview.3", LIFECYCLE)
def a_core_that_is_not_there(told: RecordingJson) -> None:
    success(told)["R"]["execution"]["R_lite"][0]["children"]["core"] = "7"


@planted("14.attributes.2", "29")
def an_expiration_that_is_not_of_the_job(told: RecordingJson) -> None:
    success(told)["R"]["execution"]["expiration"] += 60


@planted("20.overview.4", LIFECYCLE)
def started_on_another_core(told: RecordingJson) -> None:
    start(told)["R"]["execution"]["R_lite"][0]["children"]["core"] = "1"


@planted("20.overview.4", "29")
def started_with_another_expiration(told: RecordingJson) -> None:
    start(told)["R"]["execution"]["expiration"] += 60


@planted("20.format.2", LIFECYCLE)
def a_start_with_r_of_another_version(told: RecordingJson) -> None:
    start(told)["R"]["version"] = 2


@planted("20.nodelist.3", LIFECYCLE)
def a_free_with_another_host(told: RecordingJson) -> None:
    free(told)["R"]["execution"]["nodelist"] = ["node7"]


@planted("20.nslots.4", LIFECYCLE)
def a_grant_of_no_slots(told: RecordingJson) -> None:
    success(told)["R"]["execution"]["nslots"] = 0


@planted("20.format.8", LIFECYCLE)
def an_inventory_without_cores(told: RecordingJson) -> None:
    del acquired(told)["resources"]["execution"]["R_lite"][0]["children"]["core"]


# --- acquire


@planted("28.acquire.1", LIFECYCLE)
def an_acquire_with_a_group(told: RecordingJson) -> None:
    messages(told, "resource.acquire", "request")[0]["payload"] = {"group": "default"}


@planted("28.grow.2", LIFECYCLE)
def a_first_response_without_resources(told: RecordingJson) -> None:
    del acquired(told)["resources"]


@planted("28.grow.2", LIFECYCLE)
def resources_in_a_later_response(told: RecordingJson) -> None:
    acquired(told, 1)["resources"] = acquired(told)["resources"]


@planted("28.grow.3", LIFECYCLE)
def a_first_response_without_up(told: RecordingJson) -> None:
    del acquired(told)["up"]


@planted("28.background.7", LIFECYCLE)
def a_later_response_that_says_nothing(told: RecordingJson) -> None:
    acquired(told, 1).clear()


@planted("28.background.5", LIFECYCLE)
def a_target_that_is_up_and_not_in_resources(told: RecordingJson) -> None:
    acquired(told)["up"] = "9"


@planted("28.online.1", DRAIN)
def up_of_what_is_up(told: RecordingJson) -> None:
    messages(told, "resource.acquire", "response", up="1")[0]["payload"]["up"] = "0"


@planted("28.offline.1", DRAIN)
def down_of_what_is_no_target(told: RecordingJson) -> None:
    messages(told, "resource.acquire", "response", down="1")[0]["payload"]["down"] = "9"


@planted("28.shrink.1", DOWN)
def shrink_of_what_is_not_down(told: RecordingJson) -> None:
    messages(told, "resource.acquire", "response", down="3")[0]["payload"]["down"] = "2"


@planted("28.criteria.4", DRAIN, owed=True)
def a_drain_that_is_not_told(told: RecordingJson) -> None:
    last = told["messages"].index(messages(told, "resource.acquire", "response", down="2-3")[0])
    del told["messages"][last:]


@planted("28.offline.3", DRAIN)
def a_grant_of_what_is_down(told: RecordingJson) -> None:
    asked = messages(told, "sched.alloc", "request")[-1]
    at = told["messages"].index(asked)
    down = {"from": "resource", "to": "sched-simple", "type": "response"}
    down |= {"topic": "resource.acquire", "payload": {"down": "0-3"}, "t_rel": asked["t_rel"]}
    told["messages"].insert(at, down)


@planted("28.offline.3", DRAIN)
def a_grant_after_an_answer_shows_that_its_node_is_known_to_be_down(told: RecordingJson) -> None:
    """The node goes down after the job's request, and before one that is answered first."""
    asked = messages(told, "sched.alloc", "request")[-1]
    at, t = told["messages"].index(asked) + 1, asked["t_rel"]
    down = {"from": "resource", "to": "sched-simple", "type": "response"}
    down |= {"topic": "resource.acquire", "payload": {"down": "0-3"}, "t_rel": t}
    status = {"from": "resource", "to": "sched-simple", "type": "request", "t_rel": t}
    status |= {"topic": "sched.resource-status", "payload": {}}
    answer = status | {"from": "sched-simple", "to": "resource", "type": "response"}
    told["messages"][at:at] = [down, status, answer]


@planted("28.shrink.3", DOWN)
def a_grant_of_what_was_shrunk(told: RecordingJson) -> None:
    asked = messages(told, "sched.alloc", "request")[0]
    down = messages(told, "resource.acquire", "response", shrink="3")[0]
    told["messages"].remove(down)
    down["t_rel"] = asked["t_rel"]
    down["payload"] = {"down": "0-3", "shrink": "0-3"}
    told["messages"].insert(told["messages"].index(asked), down)


@planted("28.offline.5", LIFECYCLE, owed=True)
def nothing_is_freed_of_what_is_down(told: RecordingJson) -> None:
    (freed,) = messages(told, "sched.free", "request")
    at = told["messages"].index(freed)
    down = {"from": "resource", "to": "sched-simple", "type": "response", "t_rel": freed["t_rel"]}
    told["messages"][at:] = [down | {"topic": "resource.acquire", "payload": {"down": "0"}}]


# --- hello and free


@planted("27.hello.2", LIFECYCLE)
def partial_ok_that_is_no_boolean(told: RecordingJson) -> None:
    first(told, "job-manager.sched-hello", "request")["partial-ok"] = 1


@planted("27.free.2", LIFECYCLE)
def a_free_without_r(told: RecordingJson) -> None:
    del free(told)["R"]


@planted("27.free.1", LIFECYCLE)
def a_free_of_another_core(told: RecordingJson) -> None:
    free(told)["R"]["execution"]["R_lite"][0]["children"]["core"] = "1"


@planted("27.free.1", LIFECYCLE)
def a_last_free_that_is_not_final(told: RecordingJson) -> None:
    free(told)["final"] = False


@planted("27.free.1", PARTS)
def a_final_free_that_leaves_something(told: RecordingJson) -> None:
    parts = messages(told, "sched.free", "request", final=False)
    parts[0]["payload"]["final"] = True


@planted("27.free.1", LIFECYCLE, owed=True)
def no_free_at_all(told: RecordingJson) -> None:
    told["messages"].remove(messages(told, "sched.free", "request")[0])


@planted("27.ready.13", RELOAD)
def asked_for_before_the_second_ready(told: RecordingJson) -> None:
    _before_ready(told, "sched.alloc")


@planted("27.ready.13", RELOAD)
def freed_before_the_second_ready(told: RecordingJson) -> None:
    _before_ready(told, "sched.free")


def _before_ready(told: RecordingJson, topic: str) -> None:
    """The first such request after the scheduler's second hello comes between hello and ready."""
    ready = told["messages"].index(messages(told, "job-manager.sched-ready", "request")[1])
    late = next(each for each in told["messages"][ready:] if each["topic"] == topic)
    told["messages"].remove(late)
    told["messages"].insert(ready, late)


@planted("33.admin.3", DISABLED)
def a_disabled_queue_takes_a_job(told: RecordingJson) -> None:
    """A job is submitted after the queue was enabled; without that, it was disabled."""
    asked = messages(told, "job-manager.queue-enable", "request", enable=True)[0]
    place = told["messages"].index(asked)
    del told["messages"][place : place + 2]  # and the answer


@planted("invariant.freed-once", LIFECYCLE)
def freed_twice(told: RecordingJson) -> None:
    (freed,) = messages(told, "sched.free", "request")
    told["messages"].insert(told["messages"].index(freed), freed)


@planted("invariant.one-in-flight", LIFECYCLE)
def freed_while_it_is_asked_for(told: RecordingJson) -> None:
    (freed,) = messages(told, "sched.free", "request")
    (asked,) = messages(told, "sched.alloc", "request")
    told["messages"].insert(told["messages"].index(asked) + 1, freed | {"t_rel": asked["t_rel"]})


# --- execution


@planted("27.hello.12", RELOAD)
def hello_tells_of_a_free_that_was_none(told: RecordingJson) -> None:
    first(told, "job-manager.sched-hello", "response")["free"] = "0"


@planted("32.start.11", LIFECYCLE)
def a_start_without_r(told: RecordingJson) -> None:
    del start(told)["R"]


@planted("32.start.9", LIFECYCLE)
def a_reattach_of_what_has_not_started(told: RecordingJson) -> None:
    start(told)["reattach"] = True


@planted("32.start.16", LIFECYCLE)
def an_answer_of_no_type(told: RecordingJson) -> None:
    first(told, "job-exec.start", "response", type="start")["type"] = "begin"


@planted("32.start.32", LIFECYCLE)
def a_finish_with_less_than_its_own_log_has(told: RecordingJson) -> None:
    """The execution service says 0, and notes another status in the job's own namespace."""
    (said,) = messages(told, "job-exec.start", "response", type="finish")
    event = b'{"timestamp":1.0,"name":"complete","context":{"status":256}}\n'
    value = {"ver": 1, "type": "val", "data": base64.b64encode(event).decode()}
    ops = [{"key": "exec.eventlog", "flags": 32, "dirent": value}]
    noted = {"from": "job-exec", "to": "kvs", "type": "request", "topic": "kvs.commit"}
    noted |= {"payload": {"namespace": f"job-{said['payload']['id']}", "ops": ops}}
    at = told["messages"].index(said) + 1
    told["messages"].insert(at, noted | {"t_rel": said["t_rel"]})


@planted("32.start.10", REATTACH)
def a_reattach_that_is_not_answered(told: RecordingJson) -> None:
    told["messages"].remove(messages(told, "job-exec.start", "response", type="reattached")[0])


@planted("32.start.18", REATTACH)
def more_than_reattached(told: RecordingJson) -> None:
    first(told, "job-exec.start", "response", type="reattached")["data"] = {"x": 0}


@planted("20.format.1", LIFECYCLE)
def a_grant_of_null(told: RecordingJson) -> None:
    success(told)["R"] = None


@planted("32.start.10", LIFECYCLE)
def reattached_to_what_was_started(told: RecordingJson) -> None:
    first(told, "job-exec.start", "response", type="start")["type"] = "reattached"


NEED_HEADERS = {"28.error.3", "invariant.guests-as-allowed"}
"""What recordings do not show: `test_tapped.py` and `test_guests.py` have violations of these."""


@planted("32.impl.4", LIFECYCLE)
def a_second_start_of_a_job_that_runs(told: RecordingJson) -> None:
    asked = messages(told, "job-exec.start", "request")[0]
    told["messages"].insert(told["messages"].index(asked) + 1, asked)


@planted("27.feasibility.2", INFEASIBLE)
def a_job_that_can_run_gets_a_payload(told: RecordingJson) -> None:
    messages(told, "feasibility.check", "response")[0]["payload"] = {"yes": 1}


@planted("27.feasibility.3", INFEASIBLE)
def a_job_that_can_never_run_gets_no_text(told: RecordingJson) -> None:
    refused = [each for each in told["messages"] if each.get("errstr", "").startswith("unsatis")]
    del refused[0]["errstr"]


@planted("28.shrink.4", DRAIN)
def an_exception_of_a_job_whose_node_is_down(told: RecordingJson) -> None:
    """The scheduler raises it, of a job that it has granted the node."""
    granted = messages(told, "sched.alloc", "response", type=0)[0]
    down = {"from": "resource", "to": "sched-simple", "type": "response", "t_rel": granted["t_rel"]}
    down |= {"topic": "resource.acquire", "payload": {"down": "0-3"}}
    raised = {"from": "sched-simple", "to": "job-manager", "type": "request", "topic": RAISE}
    payload = {"id": granted["payload"]["id"], "severity": 0, "type": "alloc", "note": "it is down"}
    raised |= {"payload": payload, "t_rel": granted["t_rel"]}
    at = told["messages"].index(granted) + 1
    told["messages"][at:at] = [down, raised]


@pytest.mark.parametrize(
    ("clause", "number", "change", "owed"),
    [pytest.param(*rest, id=name) for name, *rest in PLANTED],
)
def test_planted_violation_is_named(clause: str, number: str, change: Change, owed: bool) -> None:
    told = recording(number)
    assert clause not in broken(told, at_rest=owed)
    change(told)
    assert clause in broken(told, at_rest=owed)


def test_every_rule_of_the_current_edition_has_a_violation() -> None:
    rules = {rule.clause for rule in CURRENT_RULES if rule.is_current}
    shown_elsewhere = {*NEED_HEADERS, "28.criteria.5"}  # tests/testing/test_watching.py
    assert sorted(rules - {clause for _, clause, *_ in PLANTED}) == sorted(shown_elsewhere)


# --- no false alarms


def test_frees_of_parts_follow_each_other() -> None:
    """invariant.one-in-flight is not broken: no free is answered."""
    assert judged(recording(PARTS)).verdicts["invariant.one-in-flight"] == "kept"


def crashed(number: str) -> RecordingJson:
    """The broker is killed while a job runs; it comes back, and the job is started again."""
    told = recording(number)
    said = told["messages"]
    begun = next(
        at
        for at, each in enumerate(said)
        if each["topic"] == "job-exec.start" and each.get("payload", {}).get("type") == "start"
    )
    hellos = ("job-manager.exec-hello", "job-manager.sched-hello", "job-manager.sched-ready")
    again = [each for each in said[:begun] if each["topic"] in hellos]
    restart = [each | {"t_rel": said[begun]["t_rel"]} for each in again]
    asked = start(told) | {"reattach": True}
    begin = {"t_rel": said[begun]["t_rel"], "from": "job-manager", "to": "job-exec"}
    begin |= {"type": "request", "topic": "job-exec.start", "payload": asked}
    reattached = said[begun] | {"payload": said[begun]["payload"] | {"type": "reattached"}}
    told["messages"] = [*said[: begun + 1], *restart, begin, reattached, *said[begun + 1 :]]
    return told


def test_what_a_killed_broker_left_open_is_void_when_it_is_back() -> None:
    """32.impl.4 32.hello.8: the same service says hello again, and what was started is again."""
    told = crashed(LIFECYCLE)
    assert {each.clause for each in judged(told).violations} & {"32.impl.4"} == set()
    source = read_trace([msgspec.json.encode(told).decode()])
    classic = judge_trace(source, ALL_RULES, load_clauses())
    assert {each.clause for each in classic.violations} & {"32.impl.4", "32.hello.8"} == set()


def later(told: RecordingJson, since: float, seconds: float) -> None:
    """All that is not before `since` comes so many seconds later."""
    for each in (*told["messages"], *(each for job in told["jobs"] for each in job["eventlog"])):
        each["t_rel"] += seconds * (each["t_rel"] >= since)


def test_a_free_that_is_lost_before_the_scheduler_is_loaded_again_stays_due() -> None:
    """The new scheduler is not told of the job, which is over: nobody else would miss the free."""
    told = recording(QUEUE)
    shutdown = messages(told, "sched-simple.shutdown", "request")[1]
    frees = [
        each
        for each in messages(told, "sched.free", "request")
        if each["t_rel"] < shutdown["t_rel"]
    ]
    later(told, shutdown["t_rel"], 5.0)
    assert broken(told, at_rest=True) == set()
    told["messages"].remove(frees[-1])
    assert "27.free.1" in broken(told, at_rest=True)
