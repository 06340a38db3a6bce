"""What Flux's programs ask the job manager itself: list, getattr, and an event to post."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.messages import topics
from flux_trio.protocols import JobFlag, JobState
from tests.support.asking import GUEST_USERID, OWNER_USERID, asked, asked_by_guest
from tests.support.manager_script import ManagerScript


@pytest.fixture
def m() -> ManagerScript:
    """Job 1 runs, 2 and 3 are pending."""
    m = ManagerScript(peers=True)
    m.running(1)
    m.submit(2, 3, userid=GUEST_USERID)
    return m


def listed(m: ManagerScript, **payload: Any) -> list[dict[str, Any]]:
    m.put(asked(topics.JOB_MANAGER_LIST, payload))
    jobs: list[dict[str, Any]] = m.last(topics.JOB_MANAGER_LIST).payload["jobs"]
    return jobs


def test_the_next_pending_job_is_listed_first_and_running_jobs_last(m: ManagerScript) -> None:
    m.urgency(3, 20)
    assert [job["id"] for job in listed(m, max_entries=0)] == [3, 2, 1]
    (first,) = listed(m, max_entries=1)
    assert (first["userid"], first["urgency"], first["priority"], first["state"]) == (
        GUEST_USERID,
        20,
        20,
        JobState.SCHED,
    )


def test_a_job_that_has_ended_is_listed_until_somebody_has_waited_for_it() -> None:
    m = ManagerScript(peers=True)
    request = m.submission(1)
    request.payload["jobs"][0]["flags"] = int(JobFlag.WAITABLE)
    m.put(request)
    m.raise_(1)
    assert [(job["id"], job["state"]) for job in listed(m)] == [(1, JobState.INACTIVE)]
    m.ask(topics.JOB_WAIT, {"id": 1})
    assert listed(m) == []


def test_a_volatile_memo_is_in_the_annotations_and_in_no_eventlog(m: ManagerScript) -> None:
    m.ask(topics.JOB_MEMO, {"id": 2, "memo": {"a": 1}})
    m.ask(topics.JOB_MEMO, {"id": 2, "memo": {"a": None, "b": 2}, "volatile": True})
    assert [job.get("annotations") for job in listed(m) if job["id"] == 2] == [{"user": {"b": 2}}]
    assert m.names(2).count("memo") == 1


def test_getattr_has_the_jobspec_without_environment_and_r(m: ManagerScript) -> None:
    m.ask(topics.JOB_GETATTR, {"id": 1, "attrs": ["jobspec", "R"]})
    told = m.last(topics.JOB_GETATTR).payload
    assert told["jobspec"]["version"] == 1
    assert "environment" not in told["jobspec"]["attributes"]["system"]
    assert told["R"]["execution"]["R_lite"][0]["rank"] == "0"


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (asked(topics.JOB_GETATTR, {"id": 99, "attrs": ["jobspec"]}), "EINVAL unknown job"),
        (asked(topics.JOB_GETATTR, {"id": 1, "attrs": ["noexist"]}), "ENOENT unknown attr noexist"),
        (asked(topics.JOB_GETATTR, {"id": 2, "attrs": ["R"]}), "ENOENT R is NULL"),
        (
            asked_by_guest(topics.JOB_GETATTR, {"id": 4, "attrs": ["jobspec"]}),
            "EPERM guests can only access their own jobs",
        ),
    ],
)
def test_getattr_says_why_there_is_no_answer(m: ManagerScript, request_: Any, said: str) -> None:
    m.submit(4, userid=OWNER_USERID)
    (line,) = m.put(request_)
    assert line.split(" -> ")[1] == said


def test_the_owner_posts_an_event_of_any_name_that_no_event_of_a_job_has(m: ManagerScript) -> None:
    payload = {"id": 2, "name": "test", "context": {"note": "x"}}
    assert m.ask(topics.JOB_POST_EVENT, payload) == [f"{topics.JOB_POST_EVENT} -> {{}}"]
    assert m.context(2, "test") == {"note": "x"}
    m.ask(topics.JOB_POST_EVENT, {"id": 2, "name": "bare"})
    assert m.names(2)[-1] == "bare"
    for name, said in (
        ("clean", "EINVAL clean: expected a name"),
        ("a b", "EPROTO"),
        ("", "EPROTO"),
    ):
        (line,) = m.ask(topics.JOB_POST_EVENT, {"id": 2, "name": name})
        assert line.split(" -> ")[1].startswith(said)
    (line,) = m.put(asked_by_guest(topics.JOB_POST_EVENT, payload))
    assert "EPERM" in line
