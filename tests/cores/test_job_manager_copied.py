"""A job manager core is copied while it waits for an answer: each goes by its own state alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from flux_trio.config import Config, parse_config
from flux_trio.cores.job_manager.calls import User, UserFound
from flux_trio.formats import ResourceSet
from flux_trio.messages import Event, Response, topics
from flux_trio.protocols import (
    CONF_UPDATE,
    CREATE,
    NEW,
    PRIORITY_GET,
    VALIDATE,
    HookAnswer,
    PluginsChanged,
    Reprioritize,
)
from tests.support.manager_script import PLUGIN, START, ManagerScript

DURATION = "attributes.system.duration"
KEY = f"job.update.{DURATION}"
DEPEND, SCHED = "job.state.depend", "job.state.sched"
CLOSED = parse_config("[queues.closed.policy.access]\nallow-user = ['alice']")
R: dict[str, Any] = dict(ResourceSet.build([(0, 1, 0)], "node{}".format, nslots=1).to_json())
ALLOWED = HookAnswer(handled=True)

Step = Callable[[ManagerScript], list[str]]
Case = tuple[ManagerScript, list[Step]]
"""A manager that waits for something, and what happens then."""


def asking(*hooks: str, **how: Any) -> ManagerScript:
    return ManagerScript(hooks=hooks, peers=True, **how)


def says(topic: str, **what: Any) -> Step:
    return lambda m: m.answer(topic, **what)


def update(m: ManagerScript) -> list[str]:
    return m.ask(topics.JOB_UPDATE, {"id": 1, "updates": {DURATION: 30}})


def scheduler_agrees(m: ManagerScript) -> list[str]:
    asked = m.last(topics.SCHED_EXPIRATION)
    return m.put(Response(topics.SCHED_EXPIRATION, None, 0, asked.matchtag))


def seen(m: ManagerScript) -> tuple[list[str], list[str]]:
    """What has come of it: the durable events of job 1, and the messages sent."""
    return m.names(1), [f"{each.topic} {each.payload}" for each in m.messages]


def new_job() -> Case:
    m = asking(VALIDATE)
    m.submit(1)
    return m, [says(VALIDATE)]


def new_job_that_is_refused() -> Case:
    m = asking(VALIDATE)
    m.submit(1)
    return m, [says(VALIDATE, reject="no")]


def job_of_before_in_new() -> Case:
    m = asking(VALIDATE)
    m.submit(1)
    return m.restarted(hooks=[VALIDATE], peers=True), [says(VALIDATE)]


def job_of_before() -> Case:
    m = asking(DEPEND)
    m.submit(1)
    return m.restarted(hooks=[CREATE, NEW, DEPEND], peers=True), [
        says(CREATE),
        says(NEW),
        says(DEPEND),
    ]


def job_whose_user_is_asked_for() -> Case:
    m = asking(config=CLOSED)
    m.submit(1, queue="closed")
    return m, [lambda m: m.put(UserFound(2000, User("alice")))]


def queue_behind_a_hook() -> Case:
    m = asking(DEPEND)
    m.submit(1)
    m.raise_(1, 3)
    m.post(1, "memo", a=1)
    return m, [says(DEPEND, posts=[("memo", {"b": 2})])]


def plugin_that_is_loaded() -> Case:
    m = asking()
    m.running(1)
    m.plugins.waiting.add(NEW)
    m.put(PluginsChanged("x", ticket=7))
    return m, [says(NEW)]


def priority_of_a_job() -> Case:
    m = asking()
    m.submit(1)
    m.plugins.waiting.add(PRIORITY_GET)
    m.put(Reprioritize(PLUGIN))
    return m, [says(PRIORITY_GET, priority=3)]


def update_of_a_pending_job() -> Case:
    m = asking(KEY)
    m.submit(1)
    m.plugins.waiting.add(VALIDATE)
    update(m)
    return m, [says(KEY, handled=True), says(VALIDATE)]


def update_of_a_running_job() -> Case:
    m = asking(answers={KEY: ALLOWED})
    m.running(1)
    update(m)
    return m, [scheduler_agrees]


def new_end_of_the_instance() -> Case:
    m = asking()
    m.running(1)
    event = Event(topics.RESOURCE_EXPIRATION_EVENT, {"expiration": START + 60}, rolemask=1)
    m.put(event)
    return m, [scheduler_agrees]


def resources_of_a_plugin() -> Case:
    m = ManagerScript(answers={SCHED: HookAnswer(resource_set=R)}, peers=True, commits_wait=True)
    m.submit(1)
    m.commit()
    m.commit()
    return m, [ManagerScript.commit]


def configuration() -> Case:
    m = ManagerScript(hooks=[CONF_UPDATE])
    m.configure(Config())
    return m, [says(CONF_UPDATE)]


@pytest.mark.parametrize(
    "case",
    [
        new_job,
        new_job_that_is_refused,
        job_of_before_in_new,
        job_of_before,
        job_whose_user_is_asked_for,
        queue_behind_a_hook,
        plugin_that_is_loaded,
        priority_of_a_job,
        update_of_a_pending_job,
        update_of_a_running_job,
        new_end_of_the_instance,
        resources_of_a_plugin,
        configuration,
    ],
)
def test_answer_to_a_copy_moves_the_copy_and_not_the_original(case: Callable[[], Case]) -> None:
    m, steps = case()
    other = copy.deepcopy(m)
    before = seen(m)
    did = [step(other) for step in steps]
    assert any(did) or seen(other) != before
    assert seen(m) == before
    assert [step(m) for step in steps] == did
    assert seen(m) == seen(other)
