"""What waits for a plugin's answer, and what ends the wait."""

from __future__ import annotations

from typing import get_args

import pytest

from flux_trio.config import Config
from flux_trio.cores.job_manager.calls import JobManagerCall
from flux_trio.cores.job_manager.jobs.active_job import ActiveJob
from flux_trio.cores.job_manager.parts import Parts
from flux_trio.cores.job_manager.replies import HANDLERS
from flux_trio.cores.outbox import Outbox
from flux_trio.cores.turns import NoteAll
from flux_trio.editions import CLASSIC
from flux_trio.formats import parse_eventlog
from flux_trio.messages import topics
from flux_trio.protocols import (
    AskHook,
    HookAnswer,
    HookAnswered,
    HookEvent,
    HookPostponed,
    HookState,
    InvalidTransition,
    Job,
    JobEvent,
    JobState,
    PostEvent,
    submit_event,
)
from tests.support.asking import asked
from tests.support.manager_script import DENY, PRIORITIZE, ManagerScript

DEPEND = "job.state.depend"
SCHED = "job.state.sched"
RUN = "job.state.run"


def manager(*hooks: str) -> ManagerScript:
    return ManagerScript(hooks=hooks, peers=True)


SUBMIT = submit_event(1.0, 1, 16, 0)


def test_later_events_of_the_job_wait_for_the_answer() -> None:
    m = manager(DEPEND)
    m.submit(1)
    m.raise_(1, 3)
    m.post(1, "memo", a=1)
    assert m.names(1) == ["submit", "validate"]
    m.answer(DEPEND, posts=(("memo", {"b": 2}),))
    assert m.names(1) == ["submit", "validate", "memo", "exception", "memo", "depend", "priority"]
    assert m.job(1).memo == {"b": 2, "a": 1}


@pytest.mark.parametrize("hook", [DEPEND, PRIORITIZE, SCHED, RUN])
def test_fatal_exception_cancels_the_hook(hook: str) -> None:
    m = manager(hook)
    m.submit(1)
    if hook == RUN:
        m.alloc(1)
    m.raise_(1, 3)
    ticket = m.asked[hook].ticket
    did = m.raise_(1)
    assert f"cancel hook {ticket}" in did
    assert m.job(1).exception is not None
    assert [e.context["severity"] for e in m.log(1) if e.context and e.name == "exception"] == [
        3,
        0,
    ]
    names = m.names(1)
    assert m.answer(hook, priority=1, posts=(("memo", {"late": 1}),)) == []
    assert m.names(1) == names


def test_denial_cancels_the_hook() -> None:
    m = manager(SCHED)
    m.submit(1)
    m.answer(SCHED)
    m.urgency(1, 20)
    ticket = m.asked[SCHED].ticket
    assert f"cancel hook {ticket}" in m.alloc(1, DENY)
    assert m.state(1) == JobState.INACTIVE


def test_plugin_may_post_a_fatal_exception() -> None:
    m = manager()
    m.running(1)
    context = {"type": "house", "severity": 0, "note": "on fire"}
    assert m.post(1, "exception", **context) == ["event job-exception 1 house 0"]
    assert m.state(1) == JobState.CLEANUP


def test_grant_that_comes_while_the_hook_is_asked_waits_for_it() -> None:
    m = manager(SCHED)
    m.submit(1)
    m.answer(SCHED)
    m.urgency(1, 20)
    assert m.alloc(1) == []
    assert m.names(1)[-1] == "priority"
    assert m.answer(SCHED) == ["job-exec.start 1"]


def test_grant_of_a_job_that_is_canceled_while_the_hook_is_asked_is_freed() -> None:
    """27.cancel.7: nothing leaks."""
    m = manager(SCHED)
    m.submit(1)
    m.answer(SCHED)
    m.urgency(1, 20)
    m.alloc(1)
    assert "sched.free 1" in m.raise_(1)
    m.freed(1)
    assert m.stats()["sched"]["link"] == "ready"


def test_grant_in_waiting_is_lost_with_the_scheduler() -> None:
    m = manager(SCHED)
    m.submit(1)
    m.answer(SCHED)
    m.urgency(1, 20)
    m.alloc(1)
    m.gone("sched")
    m.attach_sched()
    assert m.answer(SCHED) == ["sched.alloc 1"]


def test_second_fatal_exception_moves_nothing_and_waits_for_the_hook() -> None:
    m = ManagerScript(hooks=["job.state.cleanup"], peers=True)
    m.submit(1)
    m.raise_(1)
    assert not [line for line in m.raise_(1) if line.startswith("cancel hook")]
    m.answer("job.state.cleanup", posts=(("memo", {"a": 1}),))
    assert m.names(1)[-4:] == ["exception", "memo", "exception", "clean"]


def test_fatal_exception_of_a_plugin_ends_the_wait_of_another() -> None:
    m = ManagerScript(hooks=[SCHED], peers=True)
    m.submit(1)
    did = m.post(1, "exception", type="house", severity=0, note="on fire")
    assert f"cancel hook {m.asked[SCHED].ticket}" in did
    assert m.state(1) == JobState.INACTIVE


def test_hook_that_what_waited_leads_to_is_not_ended_with_the_one_before() -> None:
    """The exception that ends the wait is logged once the job is in CLEANUP: its hook goes on."""
    m = ManagerScript(hooks=[SCHED, "job.state.cleanup"], peers=True)
    m.submit(1)
    m.put(PostEvent(1, "memo", {"a": 1}, "x"))
    did = m.raise_(1)
    assert "ask job.state.cleanup 1" in did
    m.answer("job.state.cleanup")
    assert m.state(1) == JobState.INACTIVE


def test_job_whose_last_hook_is_asked_is_inactive_for_those_who_ask() -> None:
    m = ManagerScript(hooks=["job.state.inactive"], peers=True)
    m.submit(1)
    m.raise_(1)
    assert m.raise_(1) == ["job-manager.raise -> ENOENT job is inactive"]
    assert m.urgency(1, 3) == ["job-manager.urgency -> ENOENT job is inactive"]
    assert m.stats()["states"]["inactive"] == 1
    m.answer("job.state.inactive")


def test_fatal_exception_that_comes_with_the_question_ends_the_wait_for_its_answer() -> None:
    """A hook of job 1 wants both for job 2: another urgency, which is asked about, and its end."""
    m = ManagerScript(hooks=[RUN], peers=True)
    m.submit(1, 2)
    m.alloc(1)
    m.plugins.waiting.add(PRIORITIZE)
    cancel = {"type": "cancel", "severity": 0, "note": "", "userid": 1}
    urgency = {"urgency": 20, "userid": 1}
    operations = (PostEvent(2, "urgency", urgency, "x"), PostEvent(2, "exception", cancel, "x"))
    did = m.put(HookAnswered(m.asked[RUN].ticket, HookAnswer(operations=operations)))
    assert f"cancel hook {m.asked[PRIORITIZE].ticket}" in did
    assert m.names(2)[-3:] == ["urgency", "exception", "clean"]


def test_nothing_else_is_taken_in_before_the_plugins_have_replied() -> None:
    """A question is an action, its answer an input: what follows of it is in the same commit."""
    m = ManagerScript(hooks=[DEPEND])
    core = m.core
    (first,) = core.turn(m.now, [m.submission(1), asked(topics.JOB_STATS)])
    assert isinstance(first, AskHook)
    assert first.topic == DEPEND
    with pytest.raises(RuntimeError, match="expected `plugins_replied` or `go_on`"):
        core.turn(m.now, [])
    assert core.plugins_replied([HookAnswered(first.ticket, HookAnswer())]) == []
    assert core.is_turning
    (second,) = core.go_on()
    assert isinstance(second, AskHook)
    assert second.topic == PRIORITIZE
    assert core.plugins_replied([HookPostponed(second.ticket)]) == []
    *_, commit = core.go_on()
    assert not core.is_turning
    (_, _, text) = commit.payload["ops"][0]
    assert [event.name for event in parse_eventlog(text)] == ["validate", "depend"]
    note, _ = core.turn(m.now, [HookAnswered(second.ticket, HookAnswer(priority=1))])
    assert [data["name"] for _, data in note.notes] == ["priority"]


def test_records_of_plugins_are_among_the_events_of_the_turn_in_order() -> None:
    m = ManagerScript(hooks=[DEPEND])
    (first,) = m.core.turn(m.now, [m.submission(1)])
    record = NoteAll([("hook", {"id": 1, "name": "the call"})])
    assert m.core.plugins_replied([record, HookAnswered(first.ticket, HookAnswer())]) == []
    (second,) = m.core.go_on()
    m.core.plugins_replied([HookPostponed(second.ticket)])
    notes = [each.notes for each in m.core.go_on() if isinstance(each, NoteAll)]
    assert [data["name"] for _, data in notes[0]] == ["submit", "validate", "the call", "depend"]


def test_what_has_no_place_names_the_job_and_what_came_before() -> None:
    ledger = Parts(Outbox(CLASSIC), 1, Config()).ledger
    job = ActiveJob(Job(7, SUBMIT), ledger.jobspecs.keep(1, b"{}"))
    ledger.step_hook(job, HookEvent.ASK)
    with pytest.raises(InvalidTransition) as info:
        ledger.step_hook(job, HookEvent.ASK)
    assert str(info.value) == (
        "job 7: hook: ask in state ASKED: "
        "expected state FREE or ANSWERED or HELD or HELD_ANSWERED (after ask)"
    )
    assert job.hook == HookState.ASKED


def test_every_open_call_has_a_part_for_its_answer() -> None:
    assert HANDLERS.keys() == set(get_args(JobManagerCall))


def test_event_that_has_no_place_names_the_job_and_the_events_before() -> None:
    ledger = Parts(Outbox(CLASSIC), 1, Config()).ledger
    jobs = [ActiveJob(Job(n, SUBMIT), ledger.jobspecs.keep(1, b"{}")) for n in (7, 8)]
    for job in jobs:
        ledger.admit(job, SUBMIT, 2)
        ledger.log_now(job, JobEvent.MEMO, {"key": 1})
    with pytest.raises(InvalidTransition, match=r"^job 7: job: .* \(after submit, memo\)$"):
        ledger.log_now(jobs[0], JobEvent.ALLOC)
