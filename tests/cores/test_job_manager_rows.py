"""Rows of ALLOC, LINK and EXECUTION that other tests only pass through: what follows from each."""

from __future__ import annotations

import pytest

from flux_trio.messages import Errno, Response, topics
from flux_trio.protocols import HookAnswer
from tests.support.asking import asked, gone
from tests.support.manager_script import (
    ANNOTATE,
    CANCEL,
    DENY,
    NAME,
    ManagerScript,
    alloc_answer,
    allocs,
    posting,
)

NOTES = {"annotations": {"sched": {"queue": 1}}}


def link(m: ManagerScript) -> str:
    state: str = m.stats()["sched"]["link"]
    return state


# --- ALLOC


def test_canceled_request_of_a_lost_scheduler_is_made_anew_of_the_next(m: ManagerScript) -> None:
    m.submit(1)
    assert "sched.cancel 1" in m.urgency(1, 0)
    m.gone("sched")
    m.attach_sched()
    assert allocs(m.urgency(1, 16)) == [1]


def test_request_that_was_annotated_or_reranked_can_be_taken_back(m: ManagerScript) -> None:
    m.submit(1, 2)
    m.alloc(1, ANNOTATE, **NOTES)
    m.urgency(2, 20)
    assert "sched.cancel 1" in m.urgency(1, 0)
    assert "sched.cancel 2" in m.urgency(2, 0)


def test_canceled_request_that_is_annotated_is_not_reranked(m: ManagerScript) -> None:
    m.submit(1)
    m.urgency(1, 0)
    m.alloc(1, ANNOTATE, **NOTES)
    assert not [line for line in m.urgency(1, 20) if line.startswith("sched.")]
    assert allocs(m.alloc(1, CANCEL)) == [1]


@pytest.mark.parametrize("is_canceled", [False, True])
def test_denied_request_leaves_nothing_to_free(m: ManagerScript, *, is_canceled: bool) -> None:
    m.submit(1)
    if is_canceled:
        m.urgency(1, 0)
    assert "sched.free 1" not in m.alloc(1, DENY)
    assert "job 1: sched.alloc: sched.free response in state IDLE" in m.freed(1)[0]


def test_a_free_is_answered_once(m: ManagerScript) -> None:
    m.running(1)
    m.execute(1, "finish", "release final")
    m.freed(1)
    assert "job 1: sched.alloc: sched.free response in state IDLE" in m.freed(1)[0]


def test_grant_that_nobody_wanted_is_forgotten_with_its_scheduler(m: ManagerScript) -> None:
    m.submit(1)
    m.raise_(1)
    assert "sched.free 1" in m.alloc(1)
    m.gone("sched")
    m.attach_sched()
    assert "job 1: sched.alloc: sched.free response in state IDLE" in m.freed(1)[0]


def test_resources_whose_expiration_was_proposed_are_freed() -> None:
    topic = "job.update.attributes.system.duration"
    m = ManagerScript(peers=True, answers={topic: HookAnswer(handled=True, validated=True)})
    m.running(1, duration=60.0)
    m.ask(topics.JOB_UPDATE, {"id": 1, "updates": {"attributes.system.duration": 90.0}})
    assert m.last(topics.SCHED_EXPIRATION).payload["id"] == 1
    assert "sched.free 1" in m.execute(1, "finish", "release final")


# --- LINK


def test_scheduler_that_goes_before_it_is_ready_is_detached() -> None:
    m = ManagerScript()
    m.hello()
    assert link(m) == "greeted"
    m.gone("sched")
    assert link(m) == "detached"


def test_scheduler_that_errs_before_it_is_ready_is_detached() -> None:
    m = ManagerScript()
    m.hello()
    m.put(Response(topics.SCHED_ALLOC, "no", Errno.EPROTO))
    assert link(m) == "detached"


def test_error_of_a_scheduler_that_has_gone_leaves_the_link_detached() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    m.gone("sched")
    assert m.sched_error(topics.SCHED_ALLOC) == []
    assert link(m) == "detached"
    assert allocs(m.attach_sched()) == [1]


def test_hello_after_a_hello_is_the_one_that_counts() -> None:
    m = ManagerScript()
    m.hello()
    m.hello(by="other")
    assert link(m) == "greeted"
    refusal = "sched-ready: expected sched-hello first, got that of another scheduler"
    assert m.ready() == [f"job-manager.sched-ready -> EPROTO {refusal}"]
    m.ready(by="other")
    assert link(m) == "ready"


# --- EXECUTION


@pytest.mark.parametrize(
    ("kinds", "wrong", "state"),
    [
        (["release 0", "start"], "start", "RUNNING"),
        (["start", "release 0"], "start", "RUNNING"),
        (["start", "exception 3"], "start", "RUNNING"),
        (["exception 0", "finish"], "start", "FINISHED"),
        (["start", "finish", "exception 3"], "start", "FINISHED"),
        (["exception 0", "release final"], "exception 3", "RELEASED"),
        (["start", "release final"], "exception 3", "RELEASED"),
    ],
)
def test_answer_out_of_place_is_refused_in_the_state_that_was_reached(
    m: ManagerScript, kinds: list[str], wrong: str, state: str
) -> None:
    m.submit(1)
    m.store_r(1, {0: [0], 1: [0]})
    m.alloc(1)
    m.execute(1, *kinds)
    name = wrong.split(maxsplit=1)[0]
    (line,) = [each for each in m.execute(1, wrong) if each.startswith("log ")]
    assert f"job-exec lost: job 1: start: {name} in state {state}:" in line


def test_finished_without_a_start_a_job_needs_no_service(m: ManagerScript) -> None:
    m.submit(1)
    m.alloc(1)
    m.execute(1, "exception 0", "finish")
    assert "release" not in m.names(1)
    m.gone("job-exec")
    assert m.names(1)[-1] == "release"


def test_released_job_stays_so_when_its_service_is_lost(m: ManagerScript) -> None:
    m.running(1)
    m.execute(1, "finish", "release final")
    m.gone("job-exec")
    m.attach_exec()
    assert "start: exception in state RELEASED:" in m.execute(1, "exception 3")[0]


def test_job_that_was_not_started_is_not_concerned_by_a_lost_service() -> None:
    prolog = {"description": "p"}
    m = ManagerScript(peers=True, answers={"job.state.run": posting(("prolog-start", prolog))})
    m.submit(1, 2)
    m.put(alloc_answer(1), alloc_answer(2))
    m.gone("job-exec")
    m.raise_(2)
    assert "sched.free 2" in m.post(2, "prolog-finish", **prolog, status=0)
    assert "release" not in m.names(2)
    m.attach_exec()
    assert m.post(1, "prolog-finish", **prolog, status=0) == ["job-exec.start 1"]


def test_service_that_goes_at_once_leaves_a_running_job_to_the_next(m: ManagerScript) -> None:
    m.running(1)
    again = m.restarted()
    again.raise_(1)  # in CLEANUP only what was started is asked about again
    hello = asked(topics.EXEC_HELLO, {"service": "job-exec"}, by="job-exec")
    again.put(hello, gone(NAME, "job-exec"))
    assert "job-exec.start 1 reattach" in again.attach_exec()
