"""R from a plugin: the job runs on it, and no scheduler is asked or told."""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.formats import ResourceSet
from flux_trio.messages import Errno, Response, topics
from flux_trio.protocols import HookAnswer, JobState, PluginsChanged
from tests.support.manager_script import CANCEL, SUCCESS, ManagerScript, key

SCHED = "job.state.sched"
R: dict[str, Any] = dict(ResourceSet.build([(0, 1, 0)], "node{}".format, nslots=1).to_json())
GIVEN = HookAnswer(resource_set=R)


def bypassing(**how: Any) -> ManagerScript:
    return ManagerScript(answers={SCHED: GIVEN}, peers=True, **how)


def test_job_runs_on_what_the_plugin_says() -> None:
    m = bypassing()
    assert m.submit(1) == ["job-manager.submit -> {'errors': []}", "job-exec.start 1"]
    assert msgspec.json.decode(m.kvs.value(f"{key(1)}.R") or "") == R
    assert m.context(1, "alloc") == {"bypass": True}


def test_alloc_is_logged_once_r_is_durable() -> None:
    m = bypassing(commits_wait=True)
    m.submit(1)
    m.commit()
    m.commit()
    assert m.names(1)[-1] == "priority"
    m.commit()
    assert m.names(1)[-1] == "alloc"


def test_no_scheduler_is_asked_to_free_it() -> None:
    m = bypassing()
    m.submit(1)
    m.execute(1, "start", "finish", "release final")
    assert m.names(1)[-2:] == ["free", "clean"]
    assert not [each for each in m.messages if each.topic.startswith("sched.")]


def test_no_scheduler_is_asked_whether_it_may_run_longer() -> None:
    duration = "attributes.system.duration"
    answers = {SCHED: GIVEN, f"job.update.{duration}": HookAnswer(handled=True)}
    m = ManagerScript(answers=answers, peers=True)
    m.submit(1)
    updated = m.ask(topics.JOB_UPDATE, {"id": 1, "updates": {duration: 60}})
    assert updated == ["job-manager.update -> {}"]
    assert m.context(1, "jobspec-update") == {duration: 60}


def test_next_scheduler_is_not_told_of_it_also_after_a_restart() -> None:
    m = bypassing()
    m.submit(1)
    m.execute(1, "start")
    m.gone("sched")
    assert m.hello() == ["job-manager.sched-hello -> ENODATA"]
    after = m.restarted(peers=True)
    after.execute(1, "finish", "release final")
    assert after.state(1) == JobState.INACTIVE


def test_request_that_was_out_is_taken_back_and_its_grant_freed() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    m.plugins.answers[SCHED] = GIVEN
    assert m.urgency(1, 20) == [
        "job-manager.urgency -> {'old_urgency': 16}",
        "sched.cancel 1",
        "job-exec.start 1",
    ]
    assert m.alloc(1, SUCCESS) == ["sched.free 1"]


def test_job_whose_request_was_taken_back_is_not_requested_again() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    m.commits_wait = True
    m.plugins.answers[SCHED] = GIVEN
    m.urgency(1, 20)
    m.commit()
    assert m.alloc(1, CANCEL) == []


def test_what_is_no_r_holds_the_job() -> None:
    m = ManagerScript(answers={SCHED: HookAnswer(resource_set={"version": 1})}, peers=True)
    did = m.submit(1)
    assert any("in SCHED: a plugin gave the job an R that cannot be read: " in line for line in did)
    m.plugins.answers[SCHED] = GIVEN
    assert "job-exec.start 1" in m.put(PluginsChanged())


def test_r_that_cannot_be_stored_ends_the_job() -> None:
    m = bypassing(commits_wait=True)
    m.submit(1)
    m.commit()
    commit = m.commits.popleft()
    failure = Response(topics.KVS_COMMIT, "disk full", Errno.ENOSPC, commit.matchtag)
    m.put(failure)
    m.commits_wait = False
    while m.commits:
        m.commit()
    assert m.context(1, "exception")["note"] == "failed to commit R to kvs: disk full"


def test_job_that_is_canceled_while_r_is_stored_does_not_run() -> None:
    m = bypassing(commits_wait=True)
    m.submit(1)
    m.commit()
    m.raise_(1)
    while m.commits:
        m.commit()
    assert m.names(1)[-2:] == ["exception", "clean"]
