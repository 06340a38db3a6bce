"""Breaches by which nobody is harmed in the trace: each is named, also in what flux-core said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flux_trio.messages import topics
from tests.support import recorded
from tests.support.recorded import RecordingJson, messages, recording

DONE = "invariant.done-as-answered"
TOLD = "invariant.expirations-told"


def nothing_is_acquired(told: RecordingJson) -> None:
    told["messages"] = [each for each in told["messages"] if each["topic"] != "resource.acquire"]


def the_id_of_another_job_is_told(told: RecordingJson) -> None:
    messages(told, topics.INGEST_SUBMIT, "response")[0]["payload"]["id"] += 1


def a_refused_job_runs(told: RecordingJson) -> None:
    answer = messages(told, topics.INGEST_SUBMIT, "response")[0]
    del answer["payload"]
    answer["errnum"] = 22


def a_cancel_is_not_logged(told: RecordingJson) -> None:
    raised = messages(told, topics.JOB_RAISE, "request")[0]["payload"]["id"]
    (job,) = [job for job in told["jobs"] if job["id"] == raised]
    job["eventlog"] = [each for each in job["eventlog"] if each["name"] != "exception"]


def no_limit_is_given_as_0(told: RecordingJson) -> None:
    messages(told, topics.SCHED_READY, "request")[0]["payload"] = {"mode": "unlimited", "limit": 0}


def the_scheduler_is_not_asked(told: RecordingJson) -> None:
    told["messages"] = [
        each for each in told["messages"] if each["topic"] != topics.SCHED_EXPIRATION
    ]


def the_scheduler_is_asked_about_another_job(told: RecordingJson) -> None:
    messages(told, topics.SCHED_EXPIRATION, "request")[0]["payload"]["id"] += 1


def the_scheduler_is_asked_about_another_end(told: RecordingJson) -> None:
    messages(told, topics.SCHED_EXPIRATION, "request")[0]["payload"]["expiration"] += 60


def what_fits_is_denied_after_a_cancel(told: RecordingJson) -> None:
    messages(told, topics.SCHED_ALLOC, "response", type=3)[0]["payload"] |= {"type": 2}


def the_error_comes_twice(told: RecordingJson) -> None:
    """27.impl.10, 32.impl.6: the scheduler, or the service, has one open request, and fails it."""
    failed = (topics.SCHED_ALLOC, "test-exec-bad.start")
    (error,) = [m for m in told["messages"] if m["topic"] in failed and m.get("errnum")]
    told["messages"].insert(told["messages"].index(error) + 1, error)


def a_valid_ready_is_refused(told: RecordingJson) -> None:
    answer = messages(told, topics.SCHED_READY, "response")[0]
    del answer["payload"]
    answer["errnum"] = 22


def jobs_that_wait_are_not_counted(told: RecordingJson) -> None:
    for answer in messages(told, topics.SCHED_READY, "response"):
        answer["payload"]["count"] = 0


def nobody_is_told_of_an_urgency(told: RecordingJson) -> None:
    """It is answered with success."""
    job = told["jobs"][2]
    job["eventlog"] = [each for each in job["eventlog"] if each["name"] != "urgency"]


def another_urgency_is_logged(told: RecordingJson) -> None:
    (urgency,) = [each for each in told["jobs"][2]["eventlog"] if each["name"] == "urgency"]
    urgency["context"]["urgency"] += 1


def an_epilog_goes_on_when_its_job_is_freed(told: RecordingJson) -> None:
    """The prolog of that job was canceled; that flux-core loses an epilog-finish is of others."""
    job = told["jobs"][2]
    job["eventlog"] = [each for each in job["eventlog"] if each["name"] != "epilog-finish"]


def an_update_is_not_logged(told: RecordingJson) -> None:
    """It is of a pending job, and answered with success."""
    job = told["jobs"][1]
    job["eventlog"] = [each for each in job["eventlog"] if each["name"] != "jobspec-update"]


def no_end_moves_and_nobody_is_asked(told: RecordingJson) -> None:
    """The update of a running job's duration is answered with success."""
    job = told["jobs"][0]
    job["eventlog"] = [each for each in job["eventlog"] if each["name"] != "resource-update"]
    of_job = [each for each in told["messages"] if each.get("payload", {}).get("id") == job["id"]]
    (asked,) = [each for each in of_job if each["topic"] == "sched.expiration"]
    at = told["messages"].index(asked)
    told["messages"][at : at + 2] = []


def the_service_is_told_another_end(told: RecordingJson) -> None:
    messages(told, "job-exec.expiration", "request")[0]["payload"]["expiration"] += 100


def the_service_is_not_told_of_an_end(told: RecordingJson) -> None:
    """Of the first job whose end moves; that such requests are sent, another one shows before."""
    found, last = told["messages"], messages(told, "job-exec.expiration", "request")[1]
    found.remove(messages(told, "job-exec.expiration", "request")[0])
    (start, *_) = messages(told, "job-exec.start", "request")
    found.insert(found.index(start), {**last, "t_rel": start["t_rel"]})


@pytest.mark.parametrize(
    ("number", "change", "clause", "party"),
    [
        ("01", nothing_is_acquired, "28.impl.1", "sched-simple"),
        ("01", the_id_of_another_job_is_told, DONE, topics.JOB_INGEST),
        ("01", a_refused_job_runs, DONE, topics.JOB_INGEST),
        ("05", a_cancel_is_not_logged, DONE, topics.JOB_MANAGER),
        ("17", no_limit_is_given_as_0, "27.ready.10", "sched-simple"),
        ("40", the_scheduler_is_not_asked, "27.expiration.1", topics.JOB_MANAGER),
        ("40", the_scheduler_is_asked_about_another_job, "27.expiration.1", topics.JOB_MANAGER),
        ("40", the_scheduler_is_asked_about_another_end, "27.expiration.1", topics.JOB_MANAGER),
        ("18", jobs_that_wait_are_not_counted, "27.ready.12", topics.JOB_MANAGER),
        ("01", a_valid_ready_is_refused, "27.ready.11", topics.JOB_MANAGER),
        ("09", nobody_is_told_of_an_urgency, DONE, topics.JOB_MANAGER),
        ("09", another_urgency_is_logged, "21.events.20", topics.JOB_MANAGER),
        ("40", an_update_is_not_logged, DONE, topics.JOB_MANAGER),
        ("40", no_end_moves_and_nobody_is_asked, DONE, topics.JOB_MANAGER),
        ("40", the_service_is_told_another_end, TOLD, topics.JOB_MANAGER),
        ("40", the_service_is_not_told_of_an_end, TOLD, topics.JOB_MANAGER),
        ("19", the_error_comes_twice, "6.request.1", "bad-sched"),
        ("28", the_error_comes_twice, "6.request.1", "client"),
        ("39", an_epilog_goes_on_when_its_job_is_freed, "21.events.25", topics.JOB_MANAGER),
        (
            "05",
            what_fits_is_denied_after_a_cancel,
            "invariant.denied-although-satisfiable",
            "sched-simple",
        ),
    ],
)
def test_what_harms_nobody_is_named(
    number: str, change: Callable[[RecordingJson], Any], clause: str, party: str
) -> None:
    told = recording(number)
    assert clause not in recorded.broken(told, at_rest=True)
    change(told)
    found = recorded.judged(told, at_rest=True).violations
    assert (clause, party) in [(each.clause, each.party) for each in found]
