"""Memos, signals and history: what users ask of the job manager about their jobs."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.messages import USERID_UNKNOWN, Response, topics
from tests.support.asking import GUEST_USERID, OWNER_USERID, asked, asked_by_guest, gone
from tests.support.manager_script import ANNOTATE, DENY, ManagerScript


@pytest.fixture
def m() -> ManagerScript:
    """Job 1 is the guest's and pending, 2 is somebody else's and runs, 3 is inactive."""
    m = ManagerScript(peers=True)
    m.submit(1, userid=GUEST_USERID)
    m.running(2, userid=GUEST_USERID + 1)
    m.submit(3, userid=GUEST_USERID)
    m.raise_(3)
    return m


def refusal(did: list[str]) -> str:
    (line,) = did
    return line.split(" -> ")[1]


# --- memo


def test_a_memo_is_an_event_and_keys_are_merged(m: ManagerScript) -> None:
    """21.events.38: what is null is removed."""
    assert m.ask(topics.JOB_MEMO, {"id": 1, "memo": {"a": 1, "b": 2}}) == [
        f"{topics.JOB_MEMO} -> {{}}"
    ]
    m.put(asked_by_guest(topics.JOB_MEMO, {"id": 1, "memo": {"a": None, "c": "x"}}))
    assert m.job(1).memo == {"b": 2, "c": "x"}
    assert m.context(1, "memo") == {"a": None, "c": "x"}


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_memo_wrote_is_in_the_annotations_of_the_alloc_event(
    m: ManagerScript, *, restarts: bool
) -> None:
    """27.success.7; readings: Annotations of the alloc event."""
    m.ask(topics.JOB_MEMO, {"id": 1, "memo": {"gone": 1, "kept": {"x": 1}, "said": "old"}})
    m.ask(topics.JOB_MEMO, {"id": 1, "memo": {"gone": None, "kept": {"y": 2, "z": None}}})
    m = m.restarted(peers=True) if restarts else m
    m.alloc(1, annotations={"sched": {"resource_summary": "r"}, "user": {"said": "new"}})
    assert m.context(1, "alloc")["annotations"] == {
        "sched": {"resource_summary": "r"},
        "user": {"kept": {"x": 1, "y": 2}, "said": "new"},
    }
    m.ask(topics.JOB_MEMO, {"id": 1, "memo": {"kept": None, "said": None}})
    assert m.job(1).annotations == {"sched": {"resource_summary": "r"}}


def test_annotations_that_are_discarded_leave_what_a_memo_wrote(m: ManagerScript) -> None:
    """27.annotate.20: the annotations of a denied job; the memo is an event of its eventlog."""
    m.ask(topics.JOB_MEMO, {"id": 1, "memo": {"mine": 1}})
    m.alloc(1, ANNOTATE, annotations={"sched": {"t_estimate": 1.0}, "other": 2})
    m.alloc(1, DENY, note="no")
    assert m.job(1).annotations == {"user": {"mine": 1}}


@pytest.mark.parametrize(
    ("jobid", "error"),
    [
        (9, "ENOENT unknown job id"),
        (3, "ENOENT job is inactive"),
        (2, "EPERM guests can only add a memo to their own jobs"),
    ],
)
def test_a_memo_that_cannot_be_says_why(m: ManagerScript, jobid: int, error: str) -> None:
    assert refusal(m.put(asked_by_guest(topics.JOB_MEMO, {"id": jobid, "memo": {}}))) == error


# --- kill


def test_a_signal_goes_by_way_of_the_execution_service(m: ManagerScript) -> None:
    assert m.ask(topics.JOB_KILL, {"id": 2, "signum": 10}) == ["job-exec.kill 2"]
    sent = m.last("job-exec.kill")
    assert sent.payload == {"id": 2, "signum": 10}
    answered = m.put(Response("job-exec.kill", None, matchtag=sent.matchtag))
    assert answered == [f"{topics.JOB_KILL} -> {{}}"]


def test_a_client_that_has_gone_is_not_answered(m: ManagerScript) -> None:
    """6.disconnect.2"""
    m.ask(topics.JOB_KILL, {"id": 2, "signum": 10}, by="shortlived")
    sent = m.last("job-exec.kill")
    m.gone("shortlived")
    assert m.put(Response("job-exec.kill", None, matchtag=sent.matchtag)) == []
    unknown = asked(topics.JOB_RAISE, {"id": 9, "severity": 0, "type": "x"}, by="shortlived")
    assert refusal(m.put(unknown)) == "ENOENT unknown job id"
    assert m.put(unknown, gone(topics.JOB_MANAGER, "shortlived")) == []


def test_what_the_execution_service_refuses_is_refused(m: ManagerScript) -> None:
    m.ask(topics.JOB_KILL, {"id": 2, "signum": 10})
    tag = m.last("job-exec.kill").matchtag
    assert refusal(m.put(Response("job-exec.kill", "not now", 22, tag))) == "EINVAL not now"


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"id": 2, "signum": 0}, "EINVAL Invalid signal number"),
        ({"id": 2, "signum": 65}, "EINVAL Invalid signal number"),
        ({"id": 9, "signum": 15}, "EINVAL unknown job id"),
        ({"id": 3, "signum": 15}, "EINVAL job is inactive"),
        ({"id": 1, "signum": 15}, "EINVAL job is not running"),
        ({"id": 2, "signum": 15}, "EPERM guests may only send signals to their own jobs"),
    ],
)
def test_a_signal_that_cannot_be_sent_says_why(
    m: ManagerScript, payload: dict[str, Any], error: str
) -> None:
    assert refusal(m.put(asked_by_guest(topics.JOB_KILL, payload))) == error


def test_signals_for_all_go_to_what_runs(m: ManagerScript) -> None:
    everybody = {"userid": USERID_UNKNOWN, "signum": 15}
    tried = m.ask(topics.JOB_KILLALL, everybody | {"dry_run": True})
    assert tried == [f"{topics.JOB_KILLALL} -> {{'count': 1, 'errors': 0}}"]
    did = m.ask(topics.JOB_KILLALL, everybody)
    assert did == ["job-exec.kill 2", f"{topics.JOB_KILLALL} -> {{'count': 1, 'errors': 0}}"]


def test_a_guest_may_signal_only_his_own(m: ManagerScript) -> None:
    did = m.put(asked_by_guest(topics.JOB_KILLALL, {"userid": USERID_UNKNOWN, "signum": 15}))
    assert refusal(did) == "EPERM guests can only kill their own jobs"
    own = m.put(asked_by_guest(topics.JOB_KILLALL, {"userid": GUEST_USERID, "signum": 15}))
    assert own == [f"{topics.JOB_KILLALL} -> {{'count': 0, 'errors': 0}}"]


# --- history


def history(m: ManagerScript, which: str) -> list[int]:
    m.ask(topics.JOB_HISTORY, {"slice": which})
    jobs: list[int] = m.last(topics.JOB_HISTORY).payload["jobs"]
    return jobs


@pytest.mark.parametrize("asked_before", [False, True])
def test_history_is_the_own_jobs_latest_first(asked_before: bool) -> None:
    m = ManagerScript(peers=True)
    if asked_before:
        assert history(m, "[:]") == []
    for jobid in (1, 2, 3):
        m.submit(jobid, userid=OWNER_USERID)
    m.submit(4, userid=GUEST_USERID)
    m.raise_(2)
    assert history(m, "[:1]") == [3]
    assert history(m, "[:]") == [3, 2, 1]
    assert history(m, "[::-1]") == [1, 2, 3]
    assert history(m, "[-1:]") == [1]
    assert history(m, "[1]") == [2]
    assert history(m.restarted(), "[:]") == [3, 2, 1]
    m.put(asked_by_guest(topics.JOB_HISTORY, {"slice": "[:]"}))
    assert m.last(topics.JOB_HISTORY).payload == {"jobs": [4]}


@pytest.mark.parametrize("which", ["", "1", "[]", "[a]", "[::0]", "[1:2:3:4]", f"[:{'9' * 5000}]"])
def test_what_is_no_slice_is_refused(m: ManagerScript, which: str) -> None:
    assert refusal(m.ask(topics.JOB_HISTORY, {"slice": which})).startswith("EINVAL ")
