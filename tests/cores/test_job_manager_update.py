"""Updates of a job's duration: pending, running, refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flux_trio.formats import ResourceSet, format_r
from flux_trio.messages import Errno, Response, topics
from flux_trio.protocols import VALIDATE, AskHook, HookAnswer, JobState
from tests.support.asking import asked_by_guest
from tests.support.manager_script import (
    ANNOTATE,
    CANCEL,
    PRIORITIZE,
    START,
    USERID,
    ManagerScript,
    key,
)

DURATION = "attributes.system.duration"
ALLOWED = {f"job.update.{DURATION}": HookAnswer(handled=True)}


@pytest.fixture
def m() -> ManagerScript:
    return ManagerScript(answers=ALLOWED, peers=True)


def update(m: ManagerScript, jobid: int, value: Any, key: str = DURATION, **how: Any) -> list[str]:
    return m.ask(topics.JOB_UPDATE, {"id": jobid, "updates": {key: value}}, **how)


def guest_update(m: ManagerScript, jobid: int, userid: int) -> list[str]:
    payload = {"id": jobid, "updates": {DURATION: 30}}
    request = asked_by_guest(topics.JOB_UPDATE, payload)
    return m.put(msgspec.structs.replace(request, userid=userid))


def running(m: ManagerScript, jobid: int, starttime: float) -> None:
    """A running job whose R is in the store."""
    resources = ResourceSet.build([(0, 1, 0)], "node{}".format, nslots=1, starttime=starttime)
    text = msgspec.json.encode(resources.to_json()).decode()
    m.kvs.commit(["put", f"{key(jobid)}.R", text])
    m.running(jobid)


def scheduler_says(m: ManagerScript, errnum: int = 0, text: str = "") -> list[str]:
    asked = m.last(topics.SCHED_EXPIRATION)
    return m.put(Response(topics.SCHED_EXPIRATION, text or None, errnum, asked.matchtag))


def test_what_the_scheduler_said_of_the_old_jobspec_is_forgotten() -> None:
    """27.success.7: also when the job waits for its priority as the cancel is answered."""
    m = ManagerScript(answers=ALLOWED, hooks=[PRIORITIZE], peers=True)
    m.submit(1)
    m.answer(PRIORITIZE, priority=16)
    m.alloc(1, ANNOTATE, annotations={"sched": {"reason_pending": "no room"}})
    update(m, 1, 30)
    m.alloc(1, CANCEL)
    m.answer(PRIORITIZE, priority=16)
    m.alloc(1, annotations={"sched": {"resource_summary": "rank0/core0"}})
    told = m.context(1, "alloc")["annotations"]
    assert told == {"sched": {"resource_summary": "rank0/core0"}}


def test_pending_job_is_requested_again_with_the_new_jobspec(m: ManagerScript) -> None:
    """21.events.6-9: a jobspec-update replaces the value; what goes to the scheduler has it."""
    m.submit(1)
    did = update(m, 1, 30)
    assert "job-manager.update -> {}" in did
    assert "sched.cancel 1" in did
    assert m.names(1)[-2:] == ["jobspec-update", "priority"]
    assert m.context(1, "jobspec-update") == {DURATION: 30.0}
    m.alloc(1, CANCEL)
    jobspec = m.last(topics.SCHED_ALLOC).payload["jobspec"]
    assert jobspec["attributes"]["system"]["duration"] == 30.0


def test_update_of_nothing_is_refused_and_changes_nothing(m: ManagerScript) -> None:
    """21.events.8; readings: Empty update. The scheduler's request is not canceled."""
    m.submit(1)
    before = m.names(1)
    refusal = "job-manager.update -> EINVAL expected at least one key with its value, got no update"
    assert m.ask(topics.JOB_UPDATE, {"id": 1, "updates": {}}) == [refusal]
    assert m.names(1) == before


def test_running_job_gets_a_new_expiration_from_its_start(m: ManagerScript) -> None:
    """27.expiration.1-3, 27.criteria.12, 21.events.11: the scheduler is asked, in whole seconds."""
    running(m, 1, starttime=START + 0.5)
    assert update(m, 1, 60) == ["sched.expiration 1"]
    asked = m.last(topics.SCHED_EXPIRATION)
    assert asked.payload == {"id": 1, "expiration": START + 61}
    assert asked.matchtag
    assert "resource-update" not in m.names(1)
    assert scheduler_says(m) == ["job-manager.update -> {}"]
    assert m.names(1)[-2:] == ["jobspec-update", "resource-update"]
    assert m.context(1, "resource-update") == {"expiration": START + 61}
    assert m.state(1) == JobState.RUN


def without_starttime(cores: int = 1) -> str:
    """R of a core, with no times."""
    return format_r(ResourceSet.build([(0, cores, 0)], "node{}".format))


@pytest.mark.parametrize("restarts", [False, True])
def test_time_limit_counts_from_start_if_r_has_no_starttime(
    m: ManagerScript, *, restarts: bool
) -> None:
    """readings: R without starttime."""
    m.submit(1)
    m.store_text(1, without_starttime())
    m.alloc(1)
    m.now += 10
    m.execute(1, "start")
    m = m.restarted(peers=True, answers=ALLOWED) if restarts else m
    m.now = START + 20
    update(m, 1, 60)
    assert m.last(topics.SCHED_EXPIRATION).payload == {"id": 1, "expiration": START + 70}


def test_time_limit_counts_from_alloc_before_the_start() -> None:
    """readings: R without starttime."""
    m = ManagerScript(answers=ALLOWED, hooks=["job.state.run"], peers=True)
    m.submit(1)
    m.now += 5
    m.store_text(1, without_starttime())
    m.alloc(1)
    m.answer("job.state.run", [("prolog-start", {"description": "p"})])
    m.now += 10
    update(m, 1, 60)
    assert m.last(topics.SCHED_EXPIRATION).payload == {"id": 1, "expiration": START + 65}


def test_running_job_is_not_given_an_end_that_is_past(m: ManagerScript) -> None:
    """In flux-core's words; whoever wants it to end cancels it."""
    running(m, 1, starttime=START - 100)
    text = "requested duration places job expiration in the past"
    assert update(m, 1, 60) == [f"job-manager.update -> EINVAL {text}"]
    assert "jobspec-update" not in m.names(1)


def test_scheduler_without_the_method_agrees(m: ManagerScript) -> None:
    """27.expiration.11: ENOSYS is processed as though the request were successful."""
    running(m, 1, starttime=START)
    update(m, 1, 60)
    assert scheduler_says(m, Errno.ENOSYS, "no method") == ["job-manager.update -> {}"]
    assert m.context(1, "resource-update") == {"expiration": START + 60}


def test_scheduler_that_is_lost_is_not_asked(m: ManagerScript) -> None:
    """27.impl.14, 27.finalization.4: nothing is sent to it; the update is made all the same."""
    running(m, 1, starttime=START)
    m.gone("sched")
    assert update(m, 1, 60) == ["job-manager.update -> {}"]
    assert m.context(1, "resource-update") == {"expiration": START + 60}


def test_refusal_of_the_scheduler_changes_nothing(m: ManagerScript) -> None:
    """27.expiration.10, 27.impl.15: the requester gets the error, and it is no fatality."""
    running(m, 1, starttime=START)
    update(m, 1, 60)
    did = scheduler_says(m, Errno.EINVAL, "too long")
    assert did == ["job-manager.update -> EINVAL scheduler refused expiration update"]
    assert m.names(1)[-1] == "start"
    assert m.stats()["sched"]["link"] == "ready"


def test_expiration_that_nobody_answers_holds_up_no_other_job(m: ManagerScript) -> None:
    """6.errors.2"""
    running(m, 1, starttime=START)
    assert update(m, 1, 60) == ["sched.expiration 1"]
    assert m.submit(2)[-1] == "sched.alloc 2"


def test_next_scheduler_is_told_what_expiration_is_in_force(m: ManagerScript) -> None:
    """27.expiration.1: R has the first one; what that scheduler says of it changes nothing."""
    running(m, 1, starttime=START)
    m.running(2)
    update(m, 1, 60.5)
    scheduler_says(m)
    m.gone("sched")
    assert m.attach_sched()[1:] == ["sched.expiration 1"]
    assert m.last(topics.SCHED_EXPIRATION).payload == {"id": 1, "expiration": START + 61}
    before = m.names(1)
    assert scheduler_says(m, Errno.EINVAL, "no") == ["log 4: job 1: sched.expiration: no"]
    assert m.names(1) == before
    assert m.stats()["sched"]["link"] == "ready"


def test_next_job_manager_tells_the_scheduler_too(m: ManagerScript) -> None:
    running(m, 1, starttime=START)
    update(m, 1, 60)
    scheduler_says(m)
    after = m.restarted(peers=True)
    assert after.last(topics.SCHED_EXPIRATION).payload == {"id": 1, "expiration": START + 60}


def test_job_that_ended_meanwhile_is_not_updated(m: ManagerScript) -> None:
    running(m, 1, starttime=START)
    update(m, 1, 60)
    m.execute(1, "finish", "release final")
    assert scheduler_says(m) == ["job-manager.update -> EINVAL job has ended meanwhile"]
    assert "resource-update" not in m.names(1)


def test_no_duration_means_no_expiration(m: ManagerScript) -> None:
    running(m, 1, starttime=START)
    update(m, 1, 0)
    assert m.last(topics.SCHED_EXPIRATION).payload == {"id": 1, "expiration": 0}


@pytest.mark.parametrize("value", ["1m", -1, True, None, float("inf")])
def test_what_is_no_duration_is_refused(m: ManagerScript, value: Any) -> None:
    m.submit(1)
    (answer,) = update(m, 1, value)
    expected = f"jobspec.{DURATION}: expected a number of seconds, at least 0, got "
    assert answer.startswith(f"job-manager.update -> EINVAL {expected}")


def test_other_keys_are_refused_and_nothing_is_half_done(m: ManagerScript) -> None:
    m.submit(1)
    updates = {DURATION: 30, "attributes.system.queue": "debug"}
    (answer,) = m.ask(topics.JOB_UPDATE, {"id": 1, "updates": updates})
    assert answer.endswith("EINVAL update of attributes.system.queue not supported")
    assert "jobspec-update" not in m.names(1)


def test_who_may_update_what(m: ManagerScript) -> None:
    m.submit(1)
    running(m, 2, starttime=START)
    m.running(3)
    m.execute(3, "finish", "release final")
    m.freed(3)
    m.running(4)
    m.execute(4, "finish")
    refusal = guest_update(m, 1, USERID + 1)[0]
    assert refusal.endswith("EPERM guests may only update their own jobs")
    assert "job-manager.update -> {}" in guest_update(m, 1, USERID)
    assert update(m, 3, 30)[0].endswith("EINVAL job is inactive")
    assert update(m, 4, 30)[0].endswith("EINVAL job is ending")
    assert update(m, 99, 30)[0].endswith("ENOENT unknown job id")


# --- what plugins allow


A, B = "attributes.system.a", "attributes.system.b"


def allowing(**how: Any) -> HookAnswer:
    return HookAnswer(handled=True, **how)


def two_keys(m: ManagerScript, **how: Any) -> str:
    """The answer to an update of both keys of a new job."""
    m.submit(1)
    did = m.ask(topics.JOB_UPDATE, {"id": 1, "updates": {A: 1, B: 2}}, **how)
    (answer,) = [line for line in did if line.startswith("job-manager.update")]
    return answer


def test_all_keys_are_one_update() -> None:
    m = ManagerScript(answers={f"job.update.{A}": allowing(), f"job.update.{B}": allowing()})
    assert two_keys(m) == "job-manager.update -> {}"
    assert m.context(1, "jobspec-update") == {A: 1, B: 2}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (HookAnswer(), f"update of {B} not supported"),
        (HookAnswer(reject="not b"), "not b"),
        (HookAnswer(error="plugin x failed"), "plugin x failed"),
    ],
)
def test_one_key_that_is_refused_refuses_all(answer: HookAnswer, why: str) -> None:
    m = ManagerScript(answers={f"job.update.{A}": allowing(), f"job.update.{B}": answer})
    assert two_keys(m) == f"job-manager.update -> EINVAL {why}"
    assert "jobspec-update" not in m.names(1)


def test_plugin_may_want_more_to_be_updated() -> None:
    further = allowing(updates={"attributes.system.c": 3})
    m = ManagerScript(answers={f"job.update.{A}": further, f"job.update.{B}": allowing()})
    two_keys(m)
    assert m.context(1, "jobspec-update") == {A: 1, B: 2, "attributes.system.c": 3}


def test_updated_jobspec_is_validated_as_it_would_be() -> None:
    seen: list[Any] = []

    def validate(question: AskHook) -> HookAnswer:
        assert question.job is not None
        system = msgspec.json.decode(question.job.current_jobspec_bytes())["attributes"]["system"]
        seen.append({key: system.get(key) for key in "ab"})
        return HookAnswer(reject="too much" if system.get("b") else None)

    answers = {f"job.update.{A}": allowing(validated=True), f"job.update.{B}": allowing()}
    m = ManagerScript(answers={VALIDATE: validate, **answers})
    assert two_keys(m) == "job-manager.update -> EINVAL too much"
    assert seen == [{"a": None, "b": None}, {"a": 1, "b": 2}]
    assert "jobspec-update" not in m.names(1)


def test_what_plugins_have_validated_is_not_asked_about_again() -> None:
    said = allowing(validated=True)
    m = ManagerScript(everything=True, answers={f"job.update.{A}": said, f"job.update.{B}": said})
    assert two_keys(m) == "job-manager.update -> {}"
    assert m.plugins.heard.count(VALIDATE) == 1


def test_job_that_the_owner_changed_without_validation_is_immutable_to_its_user() -> None:
    """In flux-core's words; so that nobody goes past a limit in two steps. Also after a restart."""
    said = allowing(validated=True)
    answers = {f"job.update.{key}": said for key in (A, B, DURATION)}
    m = ManagerScript(answers=answers)
    two_keys(m)
    assert m.context(1, "set-flags") == {"flags": ["immutable"]}
    text = "EPERM job is immutable due to previous instance owner update"
    assert guest_update(m, 1, USERID)[0].endswith(text)
    assert guest_update(m.restarted(answers=answers), 1, USERID)[0].endswith(text)


def test_keys_start_with_attributes() -> None:
    m = ManagerScript()
    m.submit(1)
    (answer,) = update(m, 1, [], key="resources")
    assert "one or more jobspec updates are invalid" in answer


def test_update_waits_for_plugins_that_think_and_for_the_hook_before() -> None:
    m = ManagerScript(hooks=["job.state.depend", f"job.update.{A}"], peers=True)
    m.submit(1)
    assert update(m, 1, 5, key=A) == []
    assert m.answer("job.state.depend")[0] == f"ask job.update.{A} 1"
    assert m.answer(f"job.update.{A}", handled=True)[0] == "job-manager.update -> {}"
    assert m.context(1, "jobspec-update") == {A: 5}


def test_grant_that_came_while_the_update_was_decided_on_is_given_back() -> None:
    m = ManagerScript(hooks=[f"job.update.{DURATION}"], peers=True)
    m.submit(1)
    update(m, 1, 60)
    assert m.alloc(1) == []
    assert "sched.free 1" in m.answer(f"job.update.{DURATION}", handled=True, validated=True)
    assert m.freed(1) == ["sched.alloc 1"]
    jobspec = m.last(topics.SCHED_ALLOC).payload["jobspec"]
    assert jobspec["attributes"]["system"]["duration"] == 60


def test_grant_that_is_given_back_to_a_lost_scheduler_is_asked_of_the_next() -> None:
    m = ManagerScript(hooks=[f"job.update.{DURATION}"], peers=True)
    m.submit(1)
    update(m, 1, 60)
    m.alloc(1)
    m.answer(f"job.update.{DURATION}", handled=True, validated=True)
    m.gone("sched")
    assert "sched.alloc 1" in m.attach_sched()


def test_job_that_starts_while_its_duration_is_decided_on_has_its_scheduler_asked() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    asked = f"job.update.{DURATION}"
    m.plugins.waiting |= {asked, "job.state.run"}
    m.alloc(1)
    update(m, 1, 60)
    assert m.answer("job.state.run")[0] == f"ask {asked} 1"
    assert "sched.expiration 1" in m.answer(asked, handled=True, validated=True)
