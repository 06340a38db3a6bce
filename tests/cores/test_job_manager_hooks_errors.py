"""Plugins that fail: the job waits in its state, says why, and is asked about again."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.messages import topics
from flux_trio.protocols import HookAnswer, JobState, PluginsChanged
from tests.support.manager_script import PRIORITIZE, ManagerScript

DEPEND, SCHED, RUN, CLEANUP, INACTIVE = (
    f"job.state.{state}" for state in ("depend", "sched", "run", "cleanup", "inactive")
)
FAILED = HookAnswer(error="plugin x failed in a hook: expected 1, got 2")
REASON = {"sched": {"reason_pending": FAILED.error}}


def failing(topic: str) -> ManagerScript:
    """A job that has come as far as a plugin's failure in `topic` lets it."""
    m = ManagerScript(answers={topic: FAILED}, peers=True)
    m.ask(topics.JOB_JOURNAL, {"allow": {"annotations": 1}}, streaming=True)
    m.submit(1)
    if topic in (RUN, CLEANUP):
        m.alloc(1)
    if topic == CLEANUP:
        m.execute(1, "start", "finish", "release final")
    return m


def annotations(m: ManagerScript) -> Any:
    """What followers of the journal were told last."""
    *_, last = m.last(topics.JOB_JOURNAL).payload["events"]
    return last[2]["context"]["annotations"]


HELD = [
    (DEPEND, JobState.DEPEND, "validate", "sched.alloc 1"),
    (PRIORITIZE, JobState.PRIORITY, "depend", "sched.alloc 1"),
    (SCHED, JobState.SCHED, "priority", "sched.alloc 1"),
    (RUN, JobState.RUN, "alloc", "job-exec.start 1"),
    (CLEANUP, JobState.CLEANUP, "release", "sched.free 1"),
]


@pytest.mark.parametrize(("topic", "state", "last", "action"), HELD)
def test_job_is_held_in_its_state_until_the_plugins_change(
    topic: str, state: JobState, last: str, action: str
) -> None:
    m = failing(topic)
    assert m.state(1) == state
    assert m.names(1)[-1] == last
    assert annotations(m)["sched"] == REASON["sched"]
    del m.plugins.answers[topic]
    if topic == PRIORITIZE:
        m.plugins.answers[topic] = HookAnswer(priority=3)
    assert action in m.put(PluginsChanged())
    assert "reason_pending" not in str(annotations(m))


@pytest.mark.parametrize("topic", [DEPEND, PRIORITIZE, SCHED])
def test_held_job_is_asked_about_again_with_another_urgency(topic: str) -> None:
    m = failing(topic)
    m.plugins.answers[topic] = HookAnswer(priority=7)
    assert "sched.alloc 1" in m.urgency(1, 20)
    assert m.context(1, "priority") == {"priority": 7 if topic != DEPEND else 20}


def test_held_job_is_asked_about_again_with_another_jobspec() -> None:
    m = failing(DEPEND)
    m.plugins.answers[DEPEND] = HookAnswer()
    assert "sched.alloc 1" in m.post(1, "jobspec-update", **{"attributes.system.bank": "b"})


def test_failure_holds_the_job_and_other_jobs_go_on() -> None:
    """The host has logged it, with the line of the plugin: it is not logged twice."""
    m = ManagerScript(answers={DEPEND: FAILED}, peers=True)
    assert [each for each in m.submit(1) if each.startswith("log")] == []
    m.plugins.answers[DEPEND] = HookAnswer()
    assert "sched.alloc 2" in m.submit(2)
    assert m.state(1) == JobState.DEPEND


def test_held_job_may_be_canceled() -> None:
    m = failing(SCHED)
    m.raise_(1)
    assert m.state(1) == JobState.INACTIVE


def test_failure_in_inactive_has_nothing_to_hold() -> None:
    m = failing(INACTIVE)
    m.raise_(1)
    assert m.state(1) == JobState.INACTIVE
    assert m.stats()["states"]["inactive"] == 1


def test_request_of_a_job_that_is_held_on_its_way_back_is_taken_back() -> None:
    """Nothing that a plugin has not agreed to is granted."""
    m = ManagerScript(peers=True)
    m.submit(1)
    m.plugins.answers[PRIORITIZE] = FAILED
    assert "sched.cancel 1" in m.urgency(1, 20)
    assert m.state(1) == JobState.PRIORITY


def test_held_job_is_not_sent_when_the_queue_or_a_scheduler_starts() -> None:
    m = failing(SCHED)
    m.queue(start=False)
    assert m.queue(start=True) == ["job-manager.queue-start -> {}"]
    m.gone("sched")
    assert m.attach_sched() == ["job-manager.sched-ready -> {'count': 0}"]


def test_held_jobs_are_still_held_when_another_plugin_fails_in_turn() -> None:
    m = failing(DEPEND)
    m.plugins.answers[DEPEND] = HookAnswer(error="plugin y failed")
    m.put(PluginsChanged())
    assert annotations(m)["sched"] == {"reason_pending": "plugin y failed"}
    m.plugins.answers[DEPEND] = HookAnswer()
    assert "sched.alloc 1" in m.put(PluginsChanged())


def test_fatal_exception_ends_an_update_that_waits_for_a_plugin() -> None:
    key = "attributes.system.duration"
    m = ManagerScript(hooks=[f"job.update.{key}"], peers=True)
    m.submit(1)
    m.ask(topics.JOB_UPDATE, {"id": 1, "updates": {key: 5}})
    did = m.raise_(1)
    assert "job-manager.update -> EINVAL a fatal exception ended the wait for an answer" in did


def test_queue_status_says_why_plugins_hold_how_many_jobs() -> None:
    m = failing(DEPEND)
    m.submit(2)
    m.ask(topics.JOB_QUEUE_STATUS)
    assert m.last(topics.JOB_QUEUE_STATUS).payload["held"] == {FAILED.error: 2}
    m.plugins.answers[DEPEND] = HookAnswer()
    m.put(PluginsChanged())
    assert "held" not in m.ask(topics.JOB_QUEUE_STATUS)[0]
