"""A job that plugins hold or are asked about: what follows, in each order of question and hold."""

from __future__ import annotations

import pytest

from flux_trio.messages import topics
from flux_trio.protocols import UPDATED, HookAnswer, PluginsChanged, SetPriority
from tests.support.manager_script import PLUGIN, PRIORITIZE, ManagerScript, allocs, posting

DEPEND, RUN = "job.state.depend", "job.state.run"
FAILED = HookAnswer(error="plugin x failed in a hook: expected 1, got 2")
UNAVAILABLE = {"priority unavailable": 1}


def held(m: ManagerScript) -> dict[str, int]:
    """Why plugins hold how many jobs, as `queue status` says."""
    m.ask(topics.JOB_QUEUE_STATUS, {})
    reasons: dict[str, int] = m.last(topics.JOB_QUEUE_STATUS).payload.get("held", {})
    return reasons


def failed(topic: str, *hooks: str) -> ManagerScript:
    """Job 1 is held, because a plugin failed in `topic`; the test answers `hooks`."""
    m = ManagerScript(answers={topic: FAILED}, hooks=hooks, peers=True)
    m.submit(1)
    if topic == RUN:
        m.alloc(1)
    assert held(m) == {FAILED.error: 1}
    del m.plugins.answers[topic]
    return m


def without_priorities() -> ManagerScript:
    """No plugin gives priorities: job 1 waits for one."""
    m = ManagerScript(peers=True)
    del m.plugins.answers[PRIORITIZE]
    m.submit(1)
    assert held(m) == UNAVAILABLE
    return m


@pytest.mark.parametrize("times", [0, 1, 2])
def test_priority_releases_the_job_however_often_it_was_unavailable(times: int) -> None:
    m = without_priorities()
    for _ in range(times):
        m.put(SetPriority(1, None, PLUGIN))
        assert held(m) == UNAVAILABLE
    assert allocs(m.put(SetPriority(1, 16, PLUGIN))) == [1]
    assert held(m) == {}
    m.post(1, "memo", a=1)
    assert m.names(1)[-1] == "memo"


def test_released_job_takes_what_plugins_post() -> None:
    m = failed(DEPEND)
    assert allocs(m.put(PluginsChanged())) == [1]
    assert held(m) == {}
    m.post(1, "memo", a=1)
    assert m.names(1)[-1] == "memo"


def test_job_that_was_never_held_is_asked_nothing_again_when_it_is_canceled() -> None:
    m = ManagerScript(hooks=[DEPEND])
    m.submit(1)
    m.urgency(1, 20)
    m.raise_(1)
    assert m.names(1)[-3:] == ["urgency", "exception", "clean"]
    assert m.plugins.heard.count(DEPEND) == 1


def test_held_job_about_which_a_plugin_thinks_is_canceled_at_once() -> None:
    m = failed(DEPEND)
    m.plugins.waiting.add(DEPEND)
    m.urgency(1, 20)
    ticket = m.asked[DEPEND].ticket
    assert f"cancel hook {ticket}" in m.raise_(1)
    assert m.names(1)[-2:] == ["exception", "clean"]
    assert held(m) == {}


def test_nothing_holds_a_job_that_was_canceled_while_it_frees_its_resources() -> None:
    m = failed(RUN)
    m.plugins.waiting.add(RUN)
    m.put(PluginsChanged())
    assert held(m) == {FAILED.error: 1}
    assert "sched.free 1" in m.raise_(1)
    assert held(m) == {}
    m.freed(1)
    assert m.names(1)[-3:] == ["exception", "free", "clean"]


def test_job_stays_held_while_the_answer_leads_to_another_question() -> None:
    m = failed(DEPEND, UPDATED)
    update = ("jobspec-update", {"attributes.system.job.name": "x"})
    m.plugins.answers[DEPEND] = posting(update)
    m.urgency(1, 20)
    assert held(m) == {FAILED.error: 1}
    assert allocs(m.answer(UPDATED)) == [1]
    assert held(m) == {}
