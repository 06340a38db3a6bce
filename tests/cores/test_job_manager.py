"""The job manager: a job from submit to INACTIVE, and what is told when (RFC 21)."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.job_index import ENDED, active_key
from flux_trio.cores.job_manager.jobs import commits
from flux_trio.formats import format_fluid
from flux_trio.messages import Errno, Response, topics
from flux_trio.protocols import JobState
from tests.support.asking import asked, gone
from tests.support.manager_script import (
    DENY,
    JOBSPEC,
    NAME,
    PRIORITIZE,
    START,
    USERID,
    ManagerScript,
    key,
)

HAPPY = [
    "submit",
    "validate",
    "depend",
    "priority",
    "alloc",
    "start",
    "finish",
    "release",
    "free",
    "clean",
]


def test_job_runs_from_submit_to_inactive(m: ManagerScript) -> None:
    """21.states.1-6, 27.background.3, 27.background.4, 27.success.6, 27.free.1, 27.free.8-9,
    32.start.1, 32.start.30, 21.criteria.3, 21.criteria.6, 21.criteria.7: the whole way.
    """
    assert m.submit(1) == ["job-manager.submit -> {'errors': []}", "sched.alloc 1"]
    assert m.alloc(1) == ["job-exec.start 1"]
    assert m.execute(1, "start") == []
    assert m.execute(1, "finish") == []
    assert m.execute(1, "release final") == ["sched.free 1"]
    assert m.names(1)[-1] == "release"
    assert m.freed(1) == []
    assert m.names(1) == HAPPY
    assert m.state(1) == JobState.INACTIVE


def test_contexts_are_those_of_the_rfc(m: ManagerScript) -> None:
    """21.events.12, 21.events.17-18, 21.events.27-31, 21.states.6, 32.start.30: what each event
    carries.
    """
    m.submit(1)
    m.alloc(1)
    m.execute(1, "start", "finish 256", "release final")
    m.freed(1)
    assert {event.name: event.context for event in m.log(1)[1:]} == {
        "validate": None,
        "depend": None,
        "priority": {"priority": 16},
        "alloc": {},
        "start": None,
        "finish": {"status": 256},
        "release": {"ranks": "all", "final": True},
        "free": None,
        "clean": None,
    }


def test_events_have_the_time_of_their_turn(m: ManagerScript) -> None:
    m.submit(1)
    m.now += 5
    m.alloc(1)
    assert [event.timestamp - START for event in m.log(1)[-2:]] == [0, 5]


# --- durability


def test_nothing_is_told_before_its_events_are_durable() -> None:
    """16.schema.4, 21.sync.1, 21.sync.2: every message waits for the commit of its turn."""
    m = ManagerScript(commits_wait=True, peers=True)
    assert m.submit(1) == ["commit 1: validate depend priority"]
    assert m.commit() == ["job-manager.submit -> {'errors': []}", "sched.alloc 1"]
    assert m.alloc(1) == ["commit 1: alloc"]
    assert m.commit() == ["job-exec.start 1"]
    assert m.execute(1, "start", "finish", "release final") == ["commit 1: start finish release"]
    assert m.commit() == ["sched.free 1"]
    assert m.freed(1) == ["commit 1: free clean"]
    assert m.commit() == []


def test_what_a_turn_stores_of_one_job_is_in_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a kill between two commits leaves a job that is both active and finished."""
    monkeypatch.setattr(commits, "COMMIT_OPS_MAX", 4)
    m = ManagerScript(peers=True)
    m.submit(1, 2, 3, urgency=0)
    m.commits_wait = True
    cancel = {"severity": 0, "type": "cancel"}
    m.put(*(asked(topics.JOB_RAISE, {"id": each, **cancel}, by="me") for each in (1, 2, 3)))
    for jobid, request in zip((1, 2, 3), m.commits, strict=True):
        appended, ended, unlinked = request.payload["ops"]
        assert appended[:2] == ["append", f"{format_fluid(jobid, 'kvs')}.eventlog"]
        assert ended[1].startswith(f"{ENDED}.")
        assert unlinked == ["unlink", active_key(jobid)]


def test_all_events_of_a_turn_are_one_commit() -> None:
    m = ManagerScript(commits_wait=True, peers=True)
    assert m.put(m.submission(1), m.submission(2)) == [
        "commit 1: validate depend priority, 2: validate depend priority"
    ]


def test_messages_of_a_later_turn_do_not_overtake_a_commit() -> None:
    m = ManagerScript(commits_wait=True, peers=True)
    m.submit(1)
    assert m.ask("job-manager.urgency", {"id": 1, "urgency": 16}) == []
    assert m.raise_(1, 3) == ["commit 1: exception"]
    assert m.commit() == [
        "job-manager.submit -> {'errors': []}",
        "sched.alloc 1",
        "job-manager.urgency -> {'old_urgency': 16}",
    ]
    assert m.commit() == ["event job-exception 1 cancel 3", "job-manager.raise -> {}"]


def test_request_whose_commit_ends_in_the_turn_of_the_loss_is_not_sent() -> None:
    """It would come to the next scheduler, or execution service, before that has said hello."""
    m = ManagerScript(commits_wait=True, peers=True)
    m.submit(1, 2)
    durable = m.kvs.take(m.commits.popleft(), NAME)
    did = m.put(*durable, gone(NAME, "sched"))
    assert [line for line in did if line.startswith("sched.")] == []
    assert m.attach_sched()[-2:] == ["sched.alloc 1", "sched.alloc 2"]
    m.alloc(1)
    durable = m.kvs.take(m.commits.popleft(), NAME)
    did = m.put(*durable, gone(NAME, "job-exec"))
    assert [line for line in did if line.startswith("job-exec.")] == []
    assert "job-exec.start 1" in m.attach_exec()


def test_canceled_job_whose_start_was_not_sent_is_asked_about_at_the_next_service() -> None:
    """readings: Final release without finish. Until then no other job could run on what it has."""
    m = ManagerScript(commits_wait=True, peers=True)
    m.submit(1)
    m.commit()
    m.alloc(1)
    m.gone("job-exec")
    m.raise_(1)
    sent = [line for _ in range(len(m.commits)) for line in m.commit()]
    assert [line for line in sent if line.startswith(("job-exec.", "sched."))] == []
    assert "job-exec.start 1" in m.attach_exec()
    m.execute(1, "release final")
    assert "sched.free 1" in m.commit()


def test_commit_that_fails_ends_the_service_and_tells_nobody() -> None:
    m = ManagerScript(commits_wait=True, peers=True)
    m.submit(1)
    commit = m.commits.popleft()
    assert m.put(Response(commit.topic, "disk: bad", Errno.EIO, commit.matchtag)) == [
        "exit: cannot store events: disk: bad"
    ]


def test_queue_status_is_answered_while_a_commit_waits_and_says_why() -> None:
    m = ManagerScript(commits_wait=True, peers=True)
    m.submit(1)
    status = "job-manager.queue-status -> {'enable': True, 'start': True"
    assert m.ask("job-manager.queue-status") == [f"{status}}}"]
    m.ask("job-manager.hindrance", {"reason": "no room"}, by="kvs")
    assert m.ask("job-manager.queue-status") == [f"{status}, 'silent': ['kvs: no room']}}"]
    m.ask("job-manager.hindrance", {"reason": ""}, by="kvs")
    assert m.ask("job-manager.queue-status") == [f"{status}}}"]


def test_hindrance_is_forgotten_with_the_service_that_told_it() -> None:
    m = ManagerScript(peers=True)
    m.ask("job-manager.hindrance", {"reason": "no room"}, by="kvs")
    m.gone("kvs")
    status = "job-manager.queue-status -> {'enable': True, 'start': True}"
    assert m.ask("job-manager.queue-status") == [status]


def test_requests_that_log_are_refused_while_too_many_bytes_of_events_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commits, "WAITING_BYTES_MAX", 500)
    m = ManagerScript(commits_wait=True, peers=True)
    m.submit(1)
    m.commit()
    memo = {"id": 1, "memo": {"a": "x" * 500}}
    assert m.ask("job-manager.memo", memo) == ["commit 1: memo"]
    asked = {
        "job-manager.memo": memo,
        "job-manager.raise": {"id": 1, "severity": 0, "type": "cancel"},
        "job-manager.raiseall": {"states": 0xFF, "severity": 0, "type": "cancel"},
        "job-manager.urgency": {"id": 1, "urgency": 9},
        "job-manager.update": {"id": 1, "updates": {"attributes.system.duration": 9}},
    }
    for topic, payload in asked.items():
        assert m.ask(topic, payload) == [], "answers wait as well"
    assert m.alloc(1) == ["commit 1: alloc"], "what a job needs is logged all the same"
    m.commit()
    for topic in list(asked)[1:]:
        assert m.last(topic).errnum == Errno.ENOSPC, topic
    m.commit()
    assert m.raise_(1, 3) == ["commit 1: exception"], "there is room again"


# --- submission


def test_jobs_of_one_submission_are_answered_together(m: ManagerScript) -> None:
    assert m.submit(1, 2)[0] == "job-manager.submit -> {'errors': []}"
    assert m.submit() == ["job-manager.submit -> {'errors': []}"]


def test_job_id_in_use_is_refused(m: ManagerScript) -> None:
    m.submit(1)
    error = "[1, 'job id 1 is already in use']"
    assert m.submit(1, 2) == [f"job-manager.submit -> {{'errors': [{error}]}}", "sched.alloc 2"]
    m.raise_(1)
    assert m.submit(1) == [f"job-manager.submit -> {{'errors': [{error}]}}"]


def test_unstorable_submission_is_refused(m: ManagerScript) -> None:
    (line,) = m.ask("job-manager.submit", {"jobs": [{"id": 1}]})
    assert line.startswith("job-manager.submit -> EPROTO job-manager.submit: payload: ")


# --- exceptions


@pytest.mark.parametrize("hook", ["job.state.depend", PRIORITIZE, "job.state.sched"])
def test_fatal_exception_ends_a_job_in_any_pending_state(hook: str) -> None:
    """21.exceptions.1, 21.exceptions.2, 21.states.7, 27.exceptions.1, 27.criteria.7: straight to
    CLEANUP, and what does not apply is skipped.
    """
    m = ManagerScript(hooks=[hook], peers=True)
    m.submit(1)
    assert m.raise_(1)[-2:] == ["event job-exception 1 cancel 0", "job-manager.raise -> {}"]
    assert m.names(1)[-2:] == ["exception", "clean"]


def test_lesser_exceptions_are_logged_and_change_nothing(m: ManagerScript) -> None:
    """21.exceptions.3, 21.exceptions.4, 21.events.32-35: severities 1 to 7, as many as come; each
    says type, severity, note (may be empty) and userid.
    """
    m.submit(1)
    for severity in (7, 1):
        assert m.raise_(1, severity, "oops") == [
            f"event job-exception 1 oops {severity}",
            "job-manager.raise -> {}",
        ]
    assert m.names(1)[-2:] == ["exception", "exception"]
    assert m.context(1, "exception") == {"type": "oops", "severity": 1, "note": "", "userid": 1000}
    assert m.state(1) == JobState.SCHED


def test_second_fatal_exception_changes_nothing(m: ManagerScript) -> None:
    """21.exceptions.2, 21.exceptions.4: it is logged; the first is the root cause."""
    m.running(1)
    m.raise_(1, 0, "first")
    m.raise_(1, 0, "second")
    assert m.names(1)[-2:] == ["exception", "exception"]
    job = m.job(1)
    assert job.state == JobState.CLEANUP
    assert job.exception is not None
    assert job.exception["type"] == "first"


def test_job_is_canceled_while_pending_without_waiting_for_the_scheduler(m: ManagerScript) -> None:
    """27.exceptions.2, 27.cancel.1, 27.cancel.2: the request is taken back and the
    job is over (readings: A SUCCESS that crosses a cancel).
    """
    m.submit(1)
    assert m.raise_(1) == [
        "event job-exception 1 cancel 0",
        "job-manager.raise -> {}",
        "sched.cancel 1",
    ]
    assert m.last("sched.cancel").payload == {"id": 1}
    assert not m.last("sched.cancel").wants_response
    assert m.names(1)[-2:] == ["exception", "clean"]


def test_running_job_is_canceled_by_the_exec_service(m: ManagerScript) -> None:
    """27.exceptions.3, 32.start.39: resources are freed after the final release."""
    m.running(1)
    assert m.raise_(1) == ["event job-exception 1 cancel 0", "job-manager.raise -> {}"]
    assert m.execute(1, "finish 15") == []
    assert m.execute(1, "release final") == ["sched.free 1"]
    m.freed(1)
    assert m.names(1)[5:] == ["start", "exception", "finish", "release", "free", "clean"]


def test_job_without_resources_needs_no_release_and_no_free(m: ManagerScript) -> None:
    """21.states.7: a job that never had resources."""
    m.submit(1)
    m.alloc(1, DENY)
    assert m.names(1)[-2:] == ["exception", "clean"]


# --- facts of the conversation


def test_jobspec_goes_out_without_environment(m: ManagerScript) -> None:
    """27.alloc.2-5, 27.alloc.7, 27.criteria.6, 27.impl.1, 27.impl.4, 27.background.7: what
    sched.alloc carries.
    """
    m.submit(1, urgency=20)
    system = dict(JOBSPEC["attributes"]["system"])  # type: ignore[index]
    del system["environment"]
    jobspec = JOBSPEC | {"attributes": {"system": system}}
    request = m.last("sched.alloc")
    assert request.matchtag == 0
    assert request.payload == {
        "id": 1,
        "priority": 20,
        "userid": USERID,
        "t_submit": START,
        "jobspec": jobspec,
    }


def test_stored_jobspec_is_never_altered(m: ManagerScript) -> None:
    """33.defaults.6-9, 21.events.8, 21.events.9, 14.submit.5: updates are events, applied to the
    copy that is sent.
    """
    m.queue(start=False)
    m.submit(1)
    stored = m.kvs.value(f"{key(1)}.jobspec")
    m.post(1, "jobspec-update", **{"attributes.system.duration": 60, "attributes.user.x.y": 1})
    m.queue(start=True)
    sent = m.last("sched.alloc").payload["jobspec"]
    assert sent["attributes"]["system"]["duration"] == 60
    assert sent["attributes"]["user"] == {"x": {"y": 1}}
    assert m.kvs.value(f"{key(1)}.jobspec") == stored


def test_client_that_leaves_changes_nothing(m: ManagerScript) -> None:
    """27.finalization.4: only the scheduler's own disconnect suspends scheduling."""
    m.submit(1)
    assert m.gone("alice") == []
    assert m.stats()["sched"]["link"] == "ready"


@pytest.mark.parametrize("stray", [Response("job-manager.x", None, 0, 77), Response("x.start", {})])
def test_answer_to_nothing_is_ignored(m: ManagerScript, stray: Any) -> None:
    assert m.put(stray) == []


def test_unknown_method_is_enosys(m: ManagerScript) -> None:
    assert m.put(asked("job-manager.dance")) == [
        "job-manager.dance -> ENOSYS no method dance in service job-manager"
    ]
