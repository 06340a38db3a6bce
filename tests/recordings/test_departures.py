"""What is known of flux-core 0.88: each entry is so narrow that another fault of its clause counts.

Each test plants a second violation of the clause in the recording that has the known one.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flux_trio.messages import topics
from tests.support import recorded
from tests.support.recorded import RecordingJson, messages, recording

Change = Callable[[RecordingJson], None]
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "flux-core-0.88.md"


def events(told: RecordingJson, name: str) -> list[Any]:
    return [each for job in told["jobs"] for each in job["eventlog"] if each["name"] == name]


def ranks_are_no_idset(told: RecordingJson) -> None:
    messages(told, "job-exec.start", "response", type="release")[0]["payload"]["data"]["ranks"] = (
        "x"
    )


def release_is_lost_while_the_service_is_there(told: RecordingJson) -> None:
    """Of the first job that is released."""
    job = next(
        job
        for job in told["jobs"]
        if {"start", "release"} <= {each["name"] for each in job["eventlog"]}
        and not any(each["name"] == "debug.start-lost" for each in job["eventlog"])
    )
    job["eventlog"] = [each for each in job["eventlog"] if each["name"] != "release"]


def another_text_is_too_long(told: RecordingJson) -> None:
    (answer,) = messages(told, topics.EXEC_HELLO, "response")
    answer |= {"errnum": 22, "errstr": "x" * 100}


def job_that_ran_is_freed_before_its_epilog_is_over(told: RecordingJson) -> None:
    job = next(
        job
        for job in told["jobs"]
        if {"start", "epilog-finish"} <= {each["name"] for each in job["eventlog"]}
    )
    job["eventlog"] = [each for each in job["eventlog"] if each["name"] != "epilog-finish"]


def fails(answer: dict[str, Any], errnum: int) -> None:
    answer |= {"errnum": errnum, "errstr": ""}
    del answer["payload"]


def success_comes_twice(told: RecordingJson) -> None:
    """From a scheduler that is not known for it."""
    success = messages(told, topics.SCHED_ALLOC, "response", type=0)[0]
    at = told["messages"].index(success)
    told["messages"].insert(at + 1, dict(success))


def an_exception_comes_after_the_final_release(told: RecordingJson) -> None:
    """From job-exec, whose second finish is known."""
    release = messages(told, "job-exec.start", "response", type="release")[0]
    data = {"severity": 1, "type": "exec", "note": ""}
    late = release | {"payload": release["payload"] | {"type": "exception", "data": data}}
    told["messages"].insert(told["messages"].index(release) + 1, late)


def the_eventlog_of_a_job_is_rewritten(told: RecordingJson) -> None:
    """By the resource module, whose own eventlog is known to be."""
    events = '{"timestamp":1.0,"name":"drain"}\n'
    value = {"ver": 1, "type": "val", "data": base64.b64encode(events.encode()).decode()}
    ops = [{"key": "job.0000.0000.0000.0001.eventlog", "flags": 0, "dirent": value}]
    commit = {"from": "resource", "to": "kvs", "type": "request", "topic": topics.KVS_COMMIT}
    payload = {"namespace": "primary", "flags": 0, "ops": ops}
    last = told["messages"][-1]["t_rel"]
    told["messages"] += [commit | {"payload": payload, "t_rel": last}] * 2


# --- second faults


def releases_a_part_as_all(told: RecordingJson) -> None:
    """What is known of job-exec is that it releases all at once."""
    (answer,) = messages(told, "job-exec.start", "response", type="release")[:1]
    answer["payload"]["data"]["final"] = False


def ranks_are_missing(told: RecordingJson) -> None:
    del messages(told, "job-exec.start", "response", type="release")[0]["payload"]["data"]["ranks"]


def expiration_is(value: Any) -> Change:
    def change(told: RecordingJson) -> None:
        messages(told, topics.SCHED_EXPIRATION, "request")[0]["payload"]["expiration"] = value

    return change


def expiration_is_logged_as(value: Any) -> Change:
    def change(told: RecordingJson) -> None:
        events(told, "resource-update")[0]["context"]["expiration"] = value

    return change


def service_left_and_the_job_had_no_exception(told: RecordingJson) -> None:
    for job in told["jobs"]:
        job["eventlog"] = [each for each in job["eventlog"] if each["name"] != "exception"]


def limit_is(limit: int) -> Change:
    def change(told: RecordingJson) -> None:
        for ready in messages(told, topics.SCHED_READY, "request"):
            ready["payload"]["limit"] = limit

    return change


def a_cancel_and_its_answer_are_dropped(told: RecordingJson) -> None:
    """The request stays open, and more than the limit are."""
    (cancel,) = messages(told, topics.SCHED_CANCEL, "request")[:1]
    jobid = cancel["payload"]["id"]
    answers = messages(told, topics.SCHED_ALLOC, "response", id=jobid, type=3)
    told["messages"] = [
        each for each in told["messages"] if each is not cancel and each not in answers
    ]


def text_is_too_long(topic: str) -> Change:
    def change(told: RecordingJson) -> None:
        answer = messages(told, topic, "response")[0]
        answer.pop("payload", None)
        answer |= {"errnum": 22, "errstr": "x" * 100}

    return change


def prolog_did_not_fail(told: RecordingJson) -> None:
    for each in events(told, "prolog-finish"):
        each["context"]["status"] = 0


def is_asked_to_leave(told: RecordingJson, module: str, before: Any) -> None:
    shutdown = {"from": "broker", "to": module, "type": "request", "topic": f"{module}.shutdown"}
    place = told["messages"].index(before)
    told["messages"].insert(place, shutdown | {"t_rel": before["t_rel"]})


def alloc_fails(errnum: int, *, leaving: bool = False) -> Change:
    def change(told: RecordingJson) -> None:
        answer = messages(told, topics.SCHED_ALLOC, "response", type=0)[0]
        if leaving:
            is_asked_to_leave(told, "sched-simple", answer)
        fails(answer, errnum)

    return change


def start_fails(errnum: int, *, leaving: bool = False) -> Change:
    def change(told: RecordingJson) -> None:
        (answer,) = messages(told, "job-exec.start", "response", type="start")
        if leaving:
            is_asked_to_leave(told, topics.JOB_EXEC, answer)
        fails(answer, errnum)

    return change


def backfill_says_after_success(kind: int, **more: Any) -> Change:
    """Known of sched-backfill is that SUCCESS comes again, not another answer."""

    def change(told: RecordingJson) -> None:
        for each in told["messages"]:
            for end in ("from", "to"):
                each[end] = each[end].replace("sched-simple", "sched-backfill")
        success = messages(told, topics.SCHED_ALLOC, "response", type=0)[0]
        content = {"id": success["payload"]["id"], "type": kind, **more}
        place = told["messages"].index(success) + 1
        told["messages"].insert(place, success | {"payload": content})

    return change


def finishes_again(after: str) -> Change:
    """Of a job that had no exception."""

    def change(told: RecordingJson) -> None:
        finish = messages(told, "job-exec.start", "response", type="finish")[0]
        last = messages(told, "job-exec.start", "response", type=after)[0]
        place = told["messages"].index(last) + 1
        told["messages"].insert(place, finish | {"t_rel": last["t_rel"]})

    return change


PLANTED: dict[str, list[tuple[str, Change]]] = {
    "32.start.20": [
        ("01", ranks_are_no_idset),
        ("01", releases_a_part_as_all),
        ("01", ranks_are_missing),
    ],
    "27.expiration.3": [("40", expiration_is(each)) for each in ("soon", -1.5, None)],
    "21.events.11": [("40", expiration_is_logged_as(each)) for each in ("soon", -1.5, None)],
    "21.states.6": [
        ("h05", release_is_lost_while_the_service_is_there),
        ("h05", service_left_and_the_job_had_no_exception),
        ("01", release_is_lost_while_the_service_is_there),
    ],
    "27.ready.7": [
        ("n05", limit_is(4)),
        ("n05", limit_is(7)),
        ("n05", a_cancel_and_its_answer_are_dropped),
    ],
    "27.criteria.2": [
        ("n05", limit_is(4)),
        ("n05", limit_is(7)),
        ("n05", a_cancel_and_its_answer_are_dropped),
    ],
    "6.response.4": [
        ("07", another_text_is_too_long),
        ("01", text_is_too_long(topics.INGEST_SUBMIT)),
        ("01", text_is_too_long(topics.SCHED_READY)),
    ],
    "27.impl.10": [
        ("01", alloc_fails(22)),
        ("01", alloc_fails(38)),
        ("01", alloc_fails(5, leaving=True)),
    ],
    "32.impl.5": [
        ("01", start_fails(22)),
        ("01", start_fails(38)),
        ("01", start_fails(5, leaving=True)),
    ],
    "27.success.8": [
        ("01", success_comes_twice),
        ("01", backfill_says_after_success(2)),
        ("01", backfill_says_after_success(1, annotations={})),
    ],
    "32.start.37": [
        ("01", an_exception_comes_after_the_final_release),
        ("01", finishes_again("finish")),
        ("01", finishes_again("release")),
    ],
    "18.format.4": [("01", the_eventlog_of_a_job_is_rewritten)],
    "21.events.25": [
        ("39", job_that_ran_is_freed_before_its_epilog_is_over),
        ("39", prolog_did_not_fail),
    ],
}
"""By clause: recordings, and second faults that are planted in them."""


@pytest.mark.parametrize(
    ("clause", "number", "plant"),
    [(clause, *each) for clause, faults in PLANTED.items() for each in faults],
)
def test_another_fault_of_a_clause_with_a_known_departure_is_named(
    clause: str, number: str, plant: Change
) -> None:
    told = recording(number)
    assert clause not in recorded.broken(told)
    plant(told)
    assert clause in recorded.broken(told)


@pytest.mark.parametrize(
    ("clause", "change"),
    [("32.impl.5", start_fails(38, leaving=True)), ("27.impl.10", alloc_fails(38, leaving=True))],
)
def test_a_module_that_is_unloaded_answers_enosys(clause: str, change: Change) -> None:
    """No recording shows it: the module would have to leave within the moment of a request."""
    told = recording("01")
    change(told)
    assert clause not in recorded.broken(told)


def test_a_job_that_has_finished_when_its_service_leaves_is_freed_without_a_release() -> None:
    """No recording shows it either: of this one the job's exception is made its finish."""
    told = recording("h05")
    canceled = told["jobs"][1]["eventlog"]
    assert [each["name"] for each in canceled][-4:-1] == ["debug.start-lost", "exception", "free"]
    for each in canceled:
        if each["name"] == "exception":
            each |= {"name": "finish", "context": {"status": 0}}
    found = recorded.judged(told)
    assert "21.states.6" not in {each.clause for each in found.violations}
    (known,) = (each for each in found.known if each.why.startswith("So does a job that has"))
    assert len(known.violations) == 1


def second_success_while_it_runs(scheduler: str) -> RecordingJson:
    """What follows: the job manager frees the resources on which the job runs."""
    text = recorded.text_of("05").replace(b"sched-simple", scheduler.encode())
    told: RecordingJson = json.loads(text)
    success = messages(told, topics.SCHED_ALLOC, "response", type=0)[0]
    started = messages(told, "job-exec.start", "response", type="start")[0]
    t, content = started["t_rel"], success["payload"]
    freed = {"id": content["id"], "R": content["R"], "final": True}
    free = {"from": "job-manager", "to": scheduler, "type": "request", "topic": topics.SCHED_FREE}
    at = told["messages"].index(started) + 1
    told["messages"][at:at] = [success | {"t_rel": t}, free | {"t_rel": t, "payload": freed}]
    return told


def test_a_second_success_is_one_thing_with_its_consequences() -> None:
    """27.success.8: of a scheduler that is known for it, they are known, too."""
    judgement = recorded.judged(second_success_while_it_runs("sched-theirs"))
    ((cause, following),) = judgement.broken_things()
    assert (cause.clause, cause.party.partition(" ")[0]) == ("27.success.8", "sched-theirs")
    assert {each.clause for each in following} == {"32.start.39", "invariant.freed-once"}
    assert recorded.judged(second_success_while_it_runs("sched-backfill")).violations == ()


def test_each_entry_has_its_test() -> None:
    assert {each.clause for each in recorded.KNOWN} == PLANTED.keys() | recorded.NEED_HEADERS


def test_page_has_each_entry_with_its_place_and_reason() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \| `([^`]+)` \|$", PAGE.read_text(), re.MULTILINE)
    told = [(each.clause, each.why.replace("|", "\\|"), each.where) for each in recorded.KNOWN]
    assert sorted(rows) == sorted(told)


def test_page_links_the_script_of_each_entry() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| \[([^]]+)\]\(([^)]+)\)", PAGE.read_text(), re.MULTILINE)
    assert [clause for clause, _, _ in rows] == [each.clause for each in recorded.KNOWN]
    for _, name, path in rows:
        script = (PAGE.parent / path).resolve()
        assert (script.name, script.is_file()) == (name, True)
