"""Priorities: what plugins say, what urgency overrides, what the scheduler is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flux_trio.cores.job_manager.jobs.sweeps import COMMITS_MAX, QUICK_PER_SLOW, SLICE_JOBS
from flux_trio.messages import topics
from flux_trio.protocols import (
    UNAVAILABLE,
    AskHook,
    HookAnswer,
    JobState,
    PostEvent,
    Reprioritize,
    SetPriority,
)
from tests.support.manager_script import CANCEL, PRIORITIZE, ManagerScript

GET = "job.priority.get"
AGAIN = Reprioritize("plug")


def by_id(change: Callable[[int], int]) -> Callable[[AskHook], HookAnswer]:
    """A priority that follows from the job id."""

    def answer(question: AskHook) -> HookAnswer:
        assert question.job is not None
        return HookAnswer(priority=change(question.job.id))

    return answer


def pending(*jobids: int) -> ManagerScript:
    """Jobs of priority 16 that the scheduler was asked for."""
    m = ManagerScript(peers=True)
    m.submit(*jobids)
    return m


# --- in PRIORITY


@pytest.mark.parametrize("said", [None, UNAVAILABLE])
def test_job_waits_until_its_priority_is_available(said: object) -> None:
    """21.states.3, 21.criteria.1."""
    m = ManagerScript(answers={PRIORITIZE: HookAnswer(priority=said)}, peers=True)  # type: ignore[arg-type]  # both
    m.submit(1)
    assert m.state(1) == JobState.PRIORITY
    assert m.put(SetPriority(1, None, "plug")) == []
    assert m.put(SetPriority(1, 9, "plug")) == ["sched.alloc 1"]
    assert m.context(1, "priority") == {"priority": 9}


def test_equal_priority_is_logged_in_priority_and_not_in_sched() -> None:
    m = pending(1)
    m.plugins.answers[PRIORITIZE] = HookAnswer(priority=16)
    m.urgency(1, 20)
    assert m.names(1)[-2:] == ["urgency", "priority"]
    assert m.put(SetPriority(1, 16, "plug")) == []
    assert m.names(1)[-2:] == ["urgency", "priority"]


def test_priority_said_in_another_states_hook_counts_where_it_may() -> None:
    m = ManagerScript(peers=True)
    m.plugins.answers["job.state.depend"] = HookAnswer(priority=3)
    m.plugins.answers["job.state.sched"] = HookAnswer(priority=5)
    m.submit(1)
    assert [e.context for e in m.log(1) if e.name == "priority"] == [
        {"priority": 16},
        {"priority": 5},
    ]


# --- set at any time


def test_priority_set_in_sched_is_told_to_the_scheduler() -> None:
    m = pending(1)
    assert m.put(SetPriority(1, 7, "plug")) == ["sched.prioritize [[1, 7]]"]


def test_priority_that_became_unavailable_in_sched_is_kept_and_logged() -> None:
    m = pending(1)
    (line,) = m.put(SetPriority(1, None, "plug"))
    assert line == "log 3: job ƒ2: priority unavailable, but it had one: kept"
    assert m.job(1).priority == 16


def test_priority_has_no_effect_before_priority_or_after_sched() -> None:
    m = ManagerScript(peers=True)
    m.running(1)
    assert m.put(SetPriority(1, 7, "plug")) == []
    assert m.job(1).priority == 16


def test_priority_0_holds_and_takes_the_request_back() -> None:
    m = pending(1)
    assert m.put(SetPriority(1, 0, "plug")) == ["sched.cancel 1"]
    assert m.alloc(1, CANCEL) == []
    assert m.put(SetPriority(1, 5, "plug")) == ["sched.alloc 1"]


# --- all again


def test_changed_priorities_go_out_as_one_prioritize_and_held_jobs_are_canceled() -> None:
    m = pending(1, 2, 3, 4)
    new = {1: 16, 2: 30, 3: 0, 4: 40}
    m.plugins.answers[GET] = by_id(new.__getitem__)
    assert m.put(AGAIN) == ["sched.cancel 3", "sched.prioritize [[2, 30], [4, 40]]"]
    assert [m.names(jobid).count("priority") for jobid in (1, 2, 3, 4)] == [1, 2, 2, 2]


@pytest.mark.parametrize(
    "answer", [HookAnswer(), HookAnswer(error="plugin x failed"), HookAnswer(priority=UNAVAILABLE)]
)
def test_without_a_new_priority_the_old_one_is_kept(answer: HookAnswer) -> None:
    m = pending(1)
    m.plugins.answers[GET] = answer
    assert "sched.prioritize" not in " ".join(m.put(AGAIN))
    assert m.job(1).priority == 16


def test_job_in_priority_goes_on_when_asked_again() -> None:
    m = ManagerScript(answers={PRIORITIZE: HookAnswer(priority=UNAVAILABLE)}, peers=True)
    m.submit(1)
    m.plugins.answers[GET] = HookAnswer(priority=0)
    m.put(AGAIN)
    assert m.state(1) == JobState.SCHED
    assert m.job(1).priority == 0


def test_asked_for_twice_before_it_began_is_asked_once() -> None:
    m = pending(1)
    m.plugins.answers[GET] = HookAnswer(priority=3)
    m.put(AGAIN, AGAIN, AGAIN)
    assert m.plugins.heard.count(GET) == 1


def test_hook_may_ask_for_all_again() -> None:
    m = pending(1)
    m.plugins.answers[GET] = HookAnswer(priority=3)
    m.plugins.answers["job.new"] = HookAnswer(operations=(AGAIN,))
    assert "sched.prioritize [[1, 3]]" in m.submit(2)


def test_many_jobs_are_asked_about_in_slices_and_the_scheduler_hears_of_all_at_once() -> None:
    jobids = range(1, SLICE_JOBS + 11)
    m = pending(*jobids)
    m.plugins.answers[GET] = by_id(lambda jobid: 100 + jobid)
    (line,) = m.put(AGAIN)
    assert line == f"sched.prioritize {[[jobid, 100 + jobid] for jobid in jobids]}"


def test_order_of_requests_is_that_of_the_new_priorities() -> None:
    m = ManagerScript(peers=False)
    m.attach_exec()
    m.submit(1, 2, 3)
    m.plugins.answers[GET] = by_id(lambda jobid: 100 + jobid)
    m.put(AGAIN)
    m.attach_sched()
    sent = [each.payload["id"] for each in m.messages if each.topic == topics.SCHED_ALLOC]
    assert sent == [3, 2, 1]


def test_job_whose_urgency_holds_it_is_not_asked_into_motion() -> None:
    m = ManagerScript(peers=True)
    m.submit(1, urgency=0)
    m.plugins.answers[GET] = HookAnswer(priority=9)
    assert m.put(AGAIN) == []


def test_sweep_that_is_ahead_of_the_disk_waits_for_it() -> None:
    """Or an answer to somebody else would wait for all of its commits."""
    jobids = range(1, 4 * SLICE_JOBS + 1)
    m = pending(*jobids)
    m.plugins.answers[GET] = by_id(lambda jobid: 100 + jobid)
    m.commits_wait = True
    m.put(AGAIN)
    assert len(m.commits) == COMMITS_MAX
    m.ask(topics.JOB_STATS)
    assert m.plugins.heard.count(GET) == COMMITS_MAX * SLICE_JOBS
    said: list[str] = []
    for _ in range(4):
        said += m.commit()
    assert [line.partition(" ")[0] for line in said if not line.startswith("commit")] == [
        "job-manager.stats-get",
        "sched.prioritize",
    ]


def test_jobs_of_a_slice_are_asked_about_by_one_action() -> None:
    m = pending(*range(1, SLICE_JOBS + 11))
    m.plugins.answers[GET] = HookAnswer(priority=3)
    m.put(AGAIN)
    assert [len(each.jobs) for each in m.plugins.asked_jobs] == [SLICE_JOBS, 10]
    tickets = [each.ticket for each in m.plugins.questions if each.topic == GET]
    assert tickets == sorted(set(tickets))


QUICK_JOBS = SLICE_JOBS * QUICK_PER_SLOW


def asked_in_slices(m: ManagerScript) -> list[int]:
    """Ask for all priorities, which only handlers of many jobs answer; the sizes of the slices."""
    m.plugins.answers[GET] = HookAnswer(priority=3)
    m.plugins.of_many = (GET,)
    m.put(AGAIN)
    return [len(each.jobs) for each in m.plugins.asked_jobs]


def test_slice_is_longer_if_only_handlers_of_many_jobs_are_asked() -> None:
    m = pending(*range(1, QUICK_JOBS + 11))
    assert asked_in_slices(m) == [QUICK_JOBS, 10]


def test_slice_is_no_longer_once_a_handler_of_one_job_is_asked() -> None:
    m = pending(*range(1, SLICE_JOBS + 11))
    assert asked_in_slices(m) == [SLICE_JOBS + 10]
    m.plugins.of_many = ()
    m.plugins.answers["job.state.run"] = HookAnswer()  # the topics have changed
    m.put(AGAIN)
    assert [len(each.jobs) for each in m.plugins.asked_jobs][1:] == [SLICE_JOBS, 10]


def test_subscribed_jobs_count_more_in_a_slice_since_plugins_are_told_of_each() -> None:
    m = pending(*range(1, QUICK_JOBS + 1))
    m.plugins.subscriptions = set(range(1, SLICE_JOBS))
    slow_but_one = SLICE_JOBS - 1  # one more would fill the turn
    assert asked_in_slices(m)[0] == slow_but_one + QUICK_PER_SLOW


def test_jobs_that_wait_in_priority_count_more_in_a_slice() -> None:
    """Their next state has a hook, which is about one job."""
    m = ManagerScript(answers={PRIORITIZE: HookAnswer(priority=UNAVAILABLE)}, peers=True)
    m.submit(*range(1, SLICE_JOBS + 11))
    assert asked_in_slices(m) == [SLICE_JOBS, 10]


def test_each_job_of_a_batch_goes_by_its_own_answer_in_order() -> None:
    """One posts, one is refused, one fails, one has no priority, one answers later."""
    m = pending(1, 2, 3, 4, 5, 6)
    answers = {
        1: HookAnswer(priority=7, operations=(PostEvent(6, "memo", {"by": 1}, "plug"),)),
        2: HookAnswer(reject="no"),
        3: HookAnswer(error="plugin x failed"),
        4: HookAnswer(priority=UNAVAILABLE),
        6: HookAnswer(priority=8),
    }

    def ask(question: AskHook) -> HookAnswer | None:
        assert question.job is not None
        if question.topic != GET:
            return HookAnswer(priority=20)
        if question.job.id == 5:
            m.plugins.asked[GET] = question
        return answers.get(question.job.id)

    m.plugins.waiting.add(GET)
    m.plugins.ask = ask  # type: ignore[method-assign]
    assert m.put(AGAIN) == [
        "log 3: job ƒ5: priority unavailable, but it had one: kept",
        "sched.prioritize [[1, 7], [6, 8]]",
    ]
    assert m.names(6)[-2:] == ["priority", "memo"]  # what waited comes behind the answer
    m.urgency(5, 20)
    assert m.job(5).priority == 16, "the event waits for the answer"
    m.answer(GET, priority=9)
    assert [each.name for each in m.log(5)][-3:] == ["priority", "urgency", "priority"]
    assert m.job(5).priority == 20


def test_fatal_exception_of_a_batch_does_not_wait_for_an_answer_that_comes_later() -> None:
    m = pending(1, 2)
    end = PostEvent(2, "exception", {"type": "x", "severity": 0, "note": "", "userid": 1}, "plug")

    def ask(question: AskHook) -> HookAnswer | None:
        assert question.job is not None
        if question.topic != GET:
            return HookAnswer()
        return HookAnswer(operations=(end,)) if question.job.id == 1 else None

    m.plugins.waiting.add(GET)
    m.plugins.ask = ask  # type: ignore[method-assign]
    assert "cancel hook" in " ".join(m.put(AGAIN))
    assert m.job(2).exception is not None
