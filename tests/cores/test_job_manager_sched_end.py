"""The job manager's side of RFC 27: late and wrong answers, free, and the scheduler's end."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.messages import Errno, Response, topics
from flux_trio.protocols import JobState
from tests.support.asking import asked
from tests.support.manager_script import (
    ANNOTATE,
    CANCEL,
    DENY,
    PRIORITIZE,
    ManagerScript,
    alloc_answer,
    allocs,
)

# --- late answers


def test_grant_of_a_canceled_job_is_freed_at_once(m: ManagerScript) -> None:
    """27.cancel.7; readings: A SUCCESS that crosses a cancel."""
    m.submit(1)
    m.raise_(1)
    assert m.alloc(1) == ["sched.free 1"]
    assert m.freed(1) == []
    assert m.names(1)[-2:] == ["exception", "clean"]
    assert m.stats()["sched"]["link"] == "ready"


@pytest.mark.parametrize("kind", [ANNOTATE, DENY, CANCEL])
def test_other_answers_for_a_canceled_job_are_ignored(m: ManagerScript, kind: Any) -> None:
    """readings: Late and stray answers."""
    m.submit(1)
    m.raise_(1)
    assert m.alloc(1, kind, annotations={"a": 1}) == []
    assert m.stats()["sched"] == {
        "link": "ready",
        "waiting": 0,
        "outstanding": 0 if kind != ANNOTATE else 1,
    }


@pytest.mark.parametrize("kind", [ANNOTATE, DENY, CANCEL])
def test_answers_for_a_job_that_runs_break_the_protocol(m: ManagerScript, kind: Any) -> None:
    """readings: Late and stray answers."""
    m.running(1)
    m.submit(2)
    (line,) = m.alloc(1, kind, annotations={"a": 1})
    assert "in state ALLOCATED" in line
    assert (m.state(1), m.state(2)) == (JobState.RUN, JobState.SCHED)
    assert "annotations" not in m.context(1, "alloc")


@pytest.mark.parametrize("kind", [ANNOTATE, CANCEL])
def test_answers_for_a_job_that_is_over_are_ignored(m: ManagerScript, kind: Any) -> None:
    m.running(1)
    m.execute(1, "finish", "release final")
    m.freed(1)
    assert m.alloc(1, kind, annotations={"a": 1}) == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (alloc_answer(9), "SUCCESS in state IDLE"),
        (alloc_answer(9, CANCEL), "CANCEL response in state IDLE"),
        (alloc_answer(1, DENY), "DENY in state ALLOCATED"),
        (Response("sched.free", {"id": 1}), "sched.free response in state ALLOCATED"),
        (Response("sched.alloc", {"id": 1, "type": 4}), "payload"),
        (Response("sched.alloc", {"id": 2, "type": 1}), "expected annotations in ANNOTATE"),
        (Response("sched.alloc", None), "payload"),
        (Response("sched.free", {}), "payload"),
    ],
)
def test_answer_that_breaks_the_protocol_suspends_scheduling(
    m: ManagerScript, answer: Response, reason: str
) -> None:
    m.running(1)
    m.submit(2)
    (line,) = m.put(answer)
    assert line.startswith("log 3: scheduling suspended: ")
    assert reason in line
    assert m.state(1) == JobState.RUN
    assert m.state(2) == JobState.SCHED


# --- free


def test_free_carries_the_id_and_no_matchtag(m: ManagerScript) -> None:
    """27.free.2, 27.free.3, 27.impl.2, 27.impl.6: and it is answered by id."""
    m.running(1)
    m.execute(1, "finish", "release final")
    request = m.last("sched.free")
    assert (request.payload, request.matchtag) == ({"id": 1}, 0)


def test_one_free_is_in_flight(m: ManagerScript) -> None:
    """27.impl.9: until it is answered."""
    m.running(1)
    m.execute(1, "finish", "release final")
    assert m.raise_(1) == ["event job-exception 1 cancel 0", "job-manager.raise -> {}"]


# --- finalization


@pytest.mark.parametrize("topic", ["sched.alloc", "sched.free"])
def test_error_response_suspends_scheduling_until_hello_and_ready(
    m: ManagerScript, topic: str
) -> None:
    """27.impl.12-14, 27.finalization.1-3, 27.finalization.5: logged, nothing is sent, no job fails;
    all is sent again after both.
    """
    m.running(1)
    m.submit(2)
    assert m.sched_error(topic) == [f"log 3: scheduling suspended: {topic}: no"]
    assert m.submit(3) == ["job-manager.submit -> {'errors': []}"]
    assert m.urgency(2, 20) == ["job-manager.urgency -> {'old_urgency': 16}"]
    assert m.raise_(3) == ["event job-exception 3 cancel 0", "job-manager.raise -> {}"]
    assert m.execute(1, "finish", "release final") == []
    assert m.queue(start=False) == ["job-manager.queue-start -> {}"]
    assert m.queue(start=True) == ["job-manager.queue-start -> {}"]
    assert m.hello()[-1] == "job-manager.sched-hello -> ENODATA"
    assert m.submit(4) == ["job-manager.submit -> {'errors': []}"]
    assert m.ready() == [
        "job-manager.sched-ready -> {'count': 2}",
        "sched.free 1",
        "sched.alloc 2",
        "sched.alloc 4",
    ]


def test_disconnect_of_the_scheduler_loses_what_was_asked(m: ManagerScript) -> None:
    """27.finalization.4, 27.finalization.5, 27.criteria.4: running jobs are not disturbed; requests
    and frees are sent again.
    """
    m.running(1)
    m.running(2)
    m.execute(2, "finish", "release final")
    m.submit(3)
    assert m.gone("sched") == ["log 6: scheduling suspended: scheduler disconnected"]
    assert m.state(1) == JobState.RUN
    assert [line.split("-> ")[1] for line in m.hello("next")][-1] == "ENODATA"
    assert m.ready(by="next")[1:] == ["sched.free 2", "sched.alloc 3"]


def test_pending_job_loses_the_schedulers_annotations_with_the_scheduler(m: ManagerScript) -> None:
    """27.annotate.20: teardown of a job that stays in SCHED (readings: Annotations)."""
    m.submit(1)
    m.alloc(1, ANNOTATE, annotations={"sched": {"a": 1}, "user": {"b": 1}})
    m.gone("sched")
    m.attach_sched()
    m.alloc(1)
    assert m.context(1, "alloc") == {"annotations": {"user": {"b": 1}}}


def test_job_canceled_while_suspended_is_not_asked_for_again(m: ManagerScript) -> None:
    m.submit(1)
    m.gone("sched")
    m.raise_(1)
    assert m.attach_sched() == ["job-manager.sched-ready -> {'count': 0}"]


def test_free_that_was_not_answered_is_sent_again(m: ManagerScript) -> None:
    """27.finalization.5, 27.impl.9: once, after the next ready."""
    m.running(1)
    m.execute(1, "finish", "release final")
    m.gone("sched")
    assert m.attach_sched() == ["job-manager.sched-ready -> {'count': 0}", "sched.free 1"]
    m.freed(1)
    assert m.state(1) == JobState.INACTIVE


def test_scheduler_that_says_hello_again_starts_anew(m: ManagerScript) -> None:
    m.submit(1)
    did = m.hello()
    assert did[0] == "log 6: scheduling suspended: replaced by another hello"
    assert allocs(m.ready()) == [1]


def test_answers_of_a_suspended_scheduler_are_dropped(m: ManagerScript) -> None:
    m.submit(1)
    m.sched_error("sched.alloc")
    assert m.alloc(1) == []
    assert m.freed(1) == []
    assert m.state(1) == JobState.SCHED


def test_error_text_is_that_of_the_errnum_when_there_is_none(m: ManagerScript) -> None:
    m.submit(1)
    response = Response("sched.alloc", None, Errno.EPROTO)
    assert m.put(response) == ["log 3: scheduling suspended: sched.alloc: Protocol error"]


def test_requests_that_wait_for_a_commit_end_with_those_they_were_for() -> None:
    """27.finalization.4, 32.impl.7: nothing is sent to one that is gone, nor to the next."""
    m = ManagerScript(commits_wait=True, peers=True)
    m.submit(1)
    m.gone("sched")
    m.hello()
    assert "sched.alloc 1" not in m.commit()
    assert "sched.alloc 1" in m.ready()
    m.alloc(1)
    m.gone("job-exec")
    assert "job-exec.start 1" not in m.commit()
    assert "job-exec.start 1" in m.attach_exec()


def test_a_job_that_goes_back_to_priority_is_not_requested_before_it_has_one() -> None:
    """21.states.4: an alloc request is made in SCHED."""
    m = ManagerScript(hooks=[PRIORITIZE], peers=True)
    m.queue(start=False)
    m.submit(1)
    m.answer(PRIORITIZE, priority=16)
    start = asked(topics.JOB_QUEUE_START, {"start": True})
    said = m.put(start, asked(topics.JOB_URGENCY, {"id": 1, "urgency": 5}))
    assert "sched.alloc 1" not in said
    assert m.answer(PRIORITIZE, priority=5) == ["sched.alloc 1"]


def test_a_queued_job_that_goes_back_to_priority_is_not_requested_before_it_has_one() -> None:
    """27.background.3: it waited for room, which the same turn makes."""
    m = ManagerScript(hooks=[PRIORITIZE])
    m.attach_exec()
    m.attach_sched(1)
    for jobid in (1, 2):
        m.submit(jobid)
        m.answer(PRIORITIZE, priority=16)
    urgency = asked(topics.JOB_URGENCY, {"id": 2, "urgency": 5})
    assert allocs(m.put(alloc_answer(1), urgency)) == []
    assert allocs(m.answer(PRIORITIZE, priority=5)) == [2]
