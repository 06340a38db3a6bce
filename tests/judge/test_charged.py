"""One broken thing is one block, charged to who broke it: edits of what real flux-core said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flux_trio.judge import Violation
from flux_trio.messages import topics
from flux_trio.trace import Record
from tests.support import recorded
from tests.support.recorded import RecordingJson, messages, recording

Change = Callable[[RecordingJson], Any]
CHARGED: list[tuple[str, Change, str, str]] = []

LIFECYCLE, IN_TURN, OVERRIDE, RELOAD = "01", "12", "27", "14"
MANAGER, SCHED, EXEC = topics.JOB_MANAGER, "sched-simple", "client"


def charged(number: str, clause: str, party: str) -> Callable[[Change], Change]:
    """Register a change of a recording that makes one block, and its violator."""

    def register(change: Change) -> Change:
        CHARGED.append((number, change, clause, party))
        return change

    return register


def success(told: RecordingJson, nth: int = 0) -> Any:
    return messages(told, topics.SCHED_ALLOC, "response", type=0)[nth]


def without_event(told: RecordingJson, jobid: int, name: str) -> None:
    for job in told["jobs"]:
        if job["id"] == jobid:
            job["eventlog"] = [each for each in job["eventlog"] if each["name"] != name]


def releases(told: RecordingJson) -> tuple[list[Any], list[Any]]:
    """The answers of the last job that was released in parts, and their events."""
    answers = messages(told, "test-exec.start", "response", type="release")
    jobid = answers[0]["payload"]["id"]
    (log,) = [job["eventlog"] for job in told["jobs"] if job["id"] == jobid]
    events = [each["context"] for each in log if each["name"] == "release"]
    return [each["payload"]["data"] for each in answers], events


@charged(LIFECYCLE, "32.start.2", MANAGER)
def a_job_is_started_without_alloc(told: RecordingJson) -> None:
    grant = success(told)
    told["messages"].remove(grant)
    without_event(told, grant["payload"]["id"], "alloc")


@charged(LIFECYCLE, "27.success.6", MANAGER)
def alloc_is_logged_without_success(told: RecordingJson) -> None:
    told["messages"].remove(success(told))


@charged(IN_TURN, "27.free.1", MANAGER)
def a_sched_free_is_missing(told: RecordingJson) -> None:
    told["messages"].remove(messages(told, topics.SCHED_FREE, "request")[0])


@charged(IN_TURN, "invariant.no-double-allocation", SCHED)
def resources_are_granted_again_before_they_are_freed(told: RecordingJson) -> None:
    free = messages(told, topics.SCHED_FREE, "request")[0]
    told["messages"].remove(free)
    next_one = success(told, 2)
    free["t_rel"] = next_one["t_rel"]
    told["messages"].insert(told["messages"].index(next_one) + 1, free)


@charged(LIFECYCLE, "27.ready.13", MANAGER)
def a_job_is_freed_before_there_is_a_scheduler(told: RecordingJson) -> None:
    free = messages(told, topics.SCHED_FREE, "request")[0]
    (hello,) = messages(told, topics.SCHED_HELLO, "request")
    place = told["messages"].index(hello)
    told["messages"].insert(place, {**free, "t_rel": hello["t_rel"]})


@charged(OVERRIDE, "32.start.20", EXEC)
def a_rank_is_released_twice(told: RecordingJson) -> None:
    for each in releases(told):
        each[1]["ranks"] = each[0]["ranks"]


@charged(OVERRIDE, "32.start.20", EXEC)
def a_rank_is_never_released(told: RecordingJson) -> None:
    for each in releases(told):
        each[-1]["ranks"] = each[-2]["ranks"]


def answer(told: RecordingJson, type_: str, **data: Any) -> Any:
    """The first answer of the execution service of this type, with these values in its data."""
    return next(
        each
        for each in messages(told, "job-exec.start", "response", type=type_)
        if data.items() <= each["payload"]["data"].items()
    )


def again(told: RecordingJson, one: Any, after: Any) -> None:
    told["messages"].insert(told["messages"].index(after) + 1, {**one, "t_rel": after["t_rel"]})


@charged(LIFECYCLE, "32.start.36", topics.JOB_EXEC)
def the_final_release_is_lost(told: RecordingJson) -> None:
    told["messages"].remove(answer(told, "release", final=True))


@charged(LIFECYCLE, "32.start.17", topics.JOB_EXEC)
def a_job_starts_twice(told: RecordingJson) -> None:
    again(told, answer(told, "start"), answer(told, "start"))


@charged(LIFECYCLE, "32.start.17", topics.JOB_EXEC)
def a_job_starts_after_its_end(told: RecordingJson) -> None:
    again(told, answer(told, "start"), answer(told, "finish"))


@charged(RELOAD, "27.hello.12", MANAGER)
def hello_tells_of_a_free_that_was_none(told: RecordingJson) -> None:
    (told_of,) = [
        each for each in messages(told, topics.SCHED_HELLO, "response") if "payload" in each
    ]
    told_of["payload"]["free"] = "0"


@charged(RELOAD, "27.hello.12", MANAGER)
def hello_tells_of_a_free_that_is_no_idset(told: RecordingJson) -> None:
    (told_of,) = [
        each for each in messages(told, topics.SCHED_HELLO, "response") if "payload" in each
    ]
    told_of["payload"]["free"] = 0


@charged(LIFECYCLE, "20.format.2", SCHED)
def an_r_has_another_version(told: RecordingJson) -> None:
    success(told)["payload"]["R"]["version"] = 2


@pytest.mark.parametrize(("number", "change", "clause", "party"), CHARGED)
def test_what_is_broken_is_one_block_of_who_broke_it(
    number: str, change: Change, clause: str, party: str
) -> None:
    told = recording(number)
    change(told)
    causes = [each for each in recorded.judged(told, at_rest=True).violations if not each.cause]
    assert [(each.clause, each.party) for each in causes] == [(clause, party)]


# --- named at once, whatever else the edit makes of it


def canceled_by_nobody(told: RecordingJson) -> None:
    grant = success(told)
    grant["payload"] = {"id": grant["payload"]["id"], "type": 3}


def answered_with_nothing(told: RecordingJson) -> None:
    success(told)["payload"] = None


def finished_without_a_start(told: RecordingJson) -> None:
    start = messages(told, "job-exec.start", "response", type="start")[0]
    told["messages"].remove(start)
    without_event(told, start["payload"]["id"], "start")


def failed_for_a_reason_that_is_no_text(told: RecordingJson) -> None:
    (answer,) = messages(told, "job-exec.start", "response", type="exception")
    answer["payload"]["data"]["note"] = 7


@pytest.mark.parametrize(
    ("number", "change", "clause", "party"),
    [
        (LIFECYCLE, canceled_by_nobody, "27.alloc.11", SCHED),
        (LIFECYCLE, answered_with_nothing, "27.alloc.9", SCHED),
        (LIFECYCLE, finished_without_a_start, "32.start.35", topics.JOB_EXEC),
        ("24", failed_for_a_reason_that_is_no_text, "32.start.27", topics.JOB_EXEC),
    ],
)
def test_who_breaks_it_is_named(number: str, change: Change, clause: str, party: str) -> None:
    told = recording(number)
    change(told)
    found = recorded.judged(told).violations
    assert (clause, party) in [(each.clause, each.party) for each in found]


@pytest.mark.parametrize(
    ("clause", "party", "role", "blamed"),
    [
        ("20.format.2", SCHED, "R-producer", "sched-simple (R-producer)"),
        ("27.success.8", SCHED, "scheduler", "sched-simple (scheduler)"),
        ("32.start.17", topics.JOB_EXEC, "exec", "job-exec"),
        ("27.ready.13", MANAGER, "job-manager", "job-manager"),
    ],
)
def test_who_is_blamed_is_told_by_name_and_role(
    clause: str, party: str, role: str, blamed: str
) -> None:
    found = Violation(clause, "", party, "", Record(1, 0.0, "send", party), (), role=role)
    assert found.blamed == blamed
