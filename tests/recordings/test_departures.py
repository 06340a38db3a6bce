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
from tests.support.recorded import Told, messages, recording

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "flux-core-0.88.md"


def events(told: Told, name: str) -> list[Any]:
    return [each for job in told["jobs"] for each in job["eventlog"] if each["name"] == name]


def ranks_are_no_idset(told: Told) -> None:
    messages(told, "job-exec.start", "response", type="release")[0]["payload"]["data"]["ranks"] = (
        "x"
    )


def expiration_is_text(told: Told) -> None:
    messages(told, topics.SCHED_EXPIRATION, "request")[0]["payload"]["expiration"] = "soon"


def expiration_is_logged_as_text(told: Told) -> None:
    events(told, "resource-update")[0]["context"]["expiration"] = "soon"


def release_is_lost_while_the_service_is_there(told: Told) -> None:
    """Of the first job that is released."""
    job = next(
        job
        for job in told["jobs"]
        if {"start", "release"} <= {each["name"] for each in job["eventlog"]}
        and not any(each["name"] == "debug.start-lost" for each in job["eventlog"])
    )
    job["eventlog"] = [each for each in job["eventlog"] if each["name"] != "release"]


def more_is_asked_for_than_the_limit(told: Told) -> None:
    """The limit is lower than the job manager takes it to be."""
    for ready in messages(told, topics.SCHED_READY, "request"):
        ready["payload"]["limit"] = 4


def another_text_is_too_long(told: Told) -> None:
    (answer,) = messages(told, topics.EXEC_HELLO, "response")
    answer |= {"errnum": 22, "errstr": "x" * 100}


def job_that_ran_is_freed_before_its_epilog_is_over(told: Told) -> None:
    job = next(
        job
        for job in told["jobs"]
        if {"start", "epilog-finish"} <= {each["name"] for each in job["eventlog"]}
    )
    job["eventlog"] = [each for each in job["eventlog"] if each["name"] != "epilog-finish"]


def fails(answer: dict[str, Any], errnum: int) -> None:
    answer |= {"errnum": errnum, "errstr": ""}
    del answer["payload"]


def start_is_answered_with(told: Told, errnum: int) -> None:
    (answer,) = messages(told, "job-exec.start", "response", type="start")
    fails(answer, errnum)


def start_is_refused(told: Told) -> None:
    start_is_answered_with(told, 22)


def alloc_is_answered_with(told: Told, errnum: int) -> None:
    fails(messages(told, topics.SCHED_ALLOC, "response", type=0)[0], errnum)


def alloc_is_refused(told: Told) -> None:
    alloc_is_answered_with(told, 22)


def success_comes_twice(told: Told) -> None:
    """From a scheduler that is not known for it."""
    success = messages(told, topics.SCHED_ALLOC, "response", type=0)[0]
    at = told["messages"].index(success)
    told["messages"].insert(at + 1, dict(success))


def an_exception_comes_after_the_final_release(told: Told) -> None:
    """From job-exec, whose second finish is known."""
    release = messages(told, "job-exec.start", "response", type="release")[0]
    data = {"severity": 1, "type": "exec", "note": ""}
    late = release | {"payload": release["payload"] | {"type": "exception", "data": data}}
    told["messages"].insert(told["messages"].index(release) + 1, late)


def the_eventlog_of_a_job_is_rewritten(told: Told) -> None:
    """By the resource module, whose own eventlog is known to be."""
    events = '{"timestamp":1.0,"name":"drain"}\n'
    value = {"ver": 1, "type": "val", "data": base64.b64encode(events.encode()).decode()}
    ops = [{"key": "job.0000.0000.0000.0001.eventlog", "flags": 0, "dirent": value}]
    commit = {"from": "resource", "to": "kvs", "type": "request", "topic": topics.KVS_COMMIT}
    payload = {"namespace": "primary", "flags": 0, "ops": ops}
    last = told["messages"][-1]["t_rel"]
    told["messages"] += [commit | {"payload": payload, "t_rel": last}] * 2


PLANTED: dict[str, tuple[str, Callable[[Told], None]]] = {
    "32.start.20": ("01", ranks_are_no_idset),
    "27.expiration.3": ("40", expiration_is_text),
    "21.events.11": ("40", expiration_is_logged_as_text),
    "21.states.6": ("h05", release_is_lost_while_the_service_is_there),
    "27.ready.7": ("n05", more_is_asked_for_than_the_limit),
    "27.criteria.2": ("n05", more_is_asked_for_than_the_limit),
    "6.response.4": ("07", another_text_is_too_long),
    "27.impl.10": ("01", alloc_is_refused),
    "32.impl.5": ("01", start_is_refused),
    "27.success.8": ("01", success_comes_twice),
    "32.start.37": ("01", an_exception_comes_after_the_final_release),
    "18.format.4": ("01", the_eventlog_of_a_job_is_rewritten),
    "21.events.25": ("39", job_that_ran_is_freed_before_its_epilog_is_over),
}


@pytest.mark.parametrize("clause", PLANTED)
def test_another_fault_of_a_clause_with_a_known_departure_is_named(clause: str) -> None:
    number, plant = PLANTED[clause]
    told = recording(number)
    assert clause not in recorded.broken(told)
    plant(told)
    assert clause in recorded.broken(told)


@pytest.mark.parametrize(
    ("clause", "answer"),
    [("32.impl.5", start_is_answered_with), ("27.impl.10", alloc_is_answered_with)],
)
def test_a_module_that_is_unloaded_answers_enosys(
    clause: str, answer: Callable[[Told, int], None]
) -> None:
    """No recording shows it: the module would have to leave within the moment of a request."""
    told = recording("01")
    answer(told, 38)
    assert clause not in recorded.broken(told)


def second_success_while_it_runs(scheduler: str) -> Told:
    """What follows: the job manager frees the resources on which the job runs."""
    text = recorded.text_of("05").replace(b"sched-simple", scheduler.encode())
    told: Told = json.loads(text)
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
