"""Which hooks are asked of a job, in which order, with what."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from flux_trio.cores.job_manager.jobs import ledger
from flux_trio.formats import apply_update, format_r, parse_r
from flux_trio.messages import topics
from flux_trio.protocols import (
    STATE_TOPICS,
    AskHook,
    DependencyAsked,
    HookAnswer,
    JobState,
    UpdateApplied,
    UpdateAsked,
)
from tests.support.manager_script import PRIORITIZE, ManagerScript, posting
from tests.support.scheduling import machine

DURATION = "attributes.system.duration"
DEPEND = "job.state.depend"
RUN = "job.state.run"
CLEANUP = "job.state.cleanup"
SUBMISSION = ["job.create", "job.validate", "job.new"]
UNTIL_SCHED = ["job.state.depend", "job.state.priority", "job.state.sched"]


def everything(**how: Any) -> ManagerScript:
    return ManagerScript(everything=True, peers=True, **how)


def depending(m: ManagerScript, jobid: int, *dependencies: object) -> list[str]:
    """Submit a job with these entries as attributes.system.dependencies."""
    return submit_with(m, jobid, list(dependencies))


def submit_with(m: ManagerScript, jobid: int, dependencies: object) -> list[str]:
    """The same, whatever stands there."""
    request = m.submission(jobid)
    assert isinstance(request.payload, dict)
    (job,) = request.payload["jobs"]
    job["jobspec"] = apply_update(job["jobspec"], "attributes.system.dependencies", dependencies)
    return m.put(request)


def test_hooks_of_a_job_come_in_the_order_of_jobtap() -> None:
    """As measured: a new urgency, a new duration, a cancel."""
    allowed = {f"job.update.{DURATION}": HookAnswer(handled=True)}
    m = everything(answers=allowed)
    m.submit(1)
    m.urgency(1, 20)
    m.ask(topics.JOB_UPDATE, {"id": 1, "updates": {DURATION: 60}})
    m.raise_(1)
    assert m.plugins.heard == [
        *SUBMISSION,
        *UNTIL_SCHED,
        "job.state.priority",
        "job.state.sched",
        f"job.update.{DURATION}",
        "job.validate",
        "job.update",
        "job.state.priority",
        "job.state.sched",
        "job.state.cleanup",
        "job.state.inactive",
        "job.inactive-add",
        "job.destroy",
    ]


def test_job_is_looked_up_for_a_while_after_its_end_and_then_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    m = everything()
    m.submit(1, 2)
    m.raise_(1)
    assert [job.id for job in m.core.active()] == [2]
    ended = m.core.get(1)
    assert ended is not None
    assert ended.state == JobState.INACTIVE
    monkeypatch.setattr(ledger, "RECENT_MAX", 1)
    m.raise_(2)
    assert m.plugins.heard[-2:] == ["job.destroy", "job.inactive-remove"]
    assert m.core.get(1) is None
    assert m.core.get(2) is not None


def test_topics_that_no_plugin_handles_are_not_asked_nor_told() -> None:
    m = ManagerScript(peers=True)
    m.running(1)
    m.execute(1, "finish", "release final")
    m.freed(1)
    assert m.plugins.heard == [PRIORITIZE]


def test_state_hook_has_the_previous_state_and_the_event_that_caused_it() -> None:
    m = everything()
    m.submit(1)
    m.urgency(1, 20)
    m.alloc(1)
    seen = [
        (q.topic.removeprefix("job.state."), q.previous, q.args.name)
        for q in m.plugins.questions
        if q.topic in STATE_TOPICS.values()
    ]
    state = JobState
    assert seen == [
        ("depend", state.NEW, "validate"),
        ("priority", state.DEPEND, "depend"),
        ("sched", state.PRIORITY, "priority"),
        ("priority", state.SCHED, "urgency"),
        ("sched", state.PRIORITY, "priority"),
        ("run", state.SCHED, "alloc"),
    ]


def test_subscribers_are_told_of_each_event_before_the_state_is_asked_about() -> None:
    m = everything()
    m.plugins.subscriptions.add(1)
    m.submit(1)
    assert m.plugins.heard == [
        *SUBMISSION,
        "job.event.validate",
        "job.state.depend",
        "job.event.depend",
        "job.state.priority",
        "job.event.priority",
        "job.state.sched",
    ]


def test_job_of_the_hook_shows_its_resources_from_run_on() -> None:
    seen: dict[str, bool] = {}

    def look(question: AskHook) -> HookAnswer:
        assert question.job is not None
        seen[question.topic] = question.job.resource_set() is not None
        return HookAnswer()

    m = ManagerScript(answers=dict.fromkeys([DEPEND, RUN], look), peers=True)
    m.submit(1)
    m.alloc(1)
    assert seen == {DEPEND: False, RUN: True}


def test_what_a_plugin_does_to_r_changes_nothing_for_others() -> None:
    """The scheduler's own data is not shown, and the rest is a copy."""
    resources = machine(2, 4).with_scheduling({"writer": "fluxion:1", "racks": {"a": ["node0"]}})
    text = format_r(resources)
    granted = parse_r(text)  # the job manager holds the same object
    shown: list[Any] = []

    def look(question: AskHook) -> HookAnswer:
        assert question.job is not None
        r: Any = question.job.resource_set()
        shown.append(copy.deepcopy(r))
        r["execution"]["R_lite"].clear()
        r.clear()
        return HookAnswer()

    m = ManagerScript(answers=dict.fromkeys([RUN, CLEANUP], look), peers=True)
    m.submit(1)
    m.store_text(1, text)
    m.alloc(1)
    m.execute(1, "start", "finish", "release final")
    assert shown == [resources.with_scheduling(None).to_json()] * 2
    assert granted == resources


def test_update_hook_is_told_what_and_by_whom() -> None:
    m = everything(answers={f"job.update.{DURATION}": HookAnswer(handled=True)})
    m.submit(1)
    m.ask(topics.JOB_UPDATE, {"id": 1, "updates": {DURATION: 60}})
    (question,) = [q for q in m.plugins.questions if q.topic == f"job.update.{DURATION}"]
    assert question.args == UpdateAsked(DURATION, 60, 1000, is_owner=True)
    (question,) = [q for q in m.plugins.questions if q.topic == "job.update"]
    assert question.args == UpdateApplied({DURATION: 60})


# --- admission


def test_dependencies_are_asked_about_one_by_one_before_new() -> None:
    m = everything()
    first = {"scheme": "afterok", "value": "ƒ1", "max": 3}
    second = {"scheme": "string", "value": "data"}
    depending(m, 1, first, second)
    assert m.plugins.heard[:5] == [
        "job.create",
        "job.validate",
        "job.dependency.afterok",
        "job.dependency.string",
        "job.new",
    ]
    assert [q.args for q in m.plugins.questions[2:4]] == [
        DependencyAsked(first),
        DependencyAsked(second),
    ]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"scheme": "moon", "value": "full"}, 'dependency scheme "moon" not supported'),
        ({"value": "full"}, "dependency[0] missing string scheme"),
        ("afterok:1", "dependency[0] missing string scheme"),
    ],
)
def test_dependency_that_nobody_handles_refuses_the_job(entry: object, why: str) -> None:
    m = ManagerScript(peers=True)
    (answer,) = depending(m, 1, entry)
    assert answer == f"job-manager.submit -> {{'errors': [[1, {why!r}]]}}"
    assert m.names(1) == []


def test_dependencies_that_are_no_array_refuse_the_job() -> None:
    m = ManagerScript(peers=True)
    (answer,) = submit_with(m, 1, {})
    assert "dependencies object must be an array" in answer


@pytest.mark.parametrize("topic", ["job.create", "job.validate", "job.dependency.moon"])
@pytest.mark.parametrize("what", ["reject", "error"])
def test_refusal_stops_the_chain_and_destroys_the_job(topic: str, what: str) -> None:
    """33.validation.4: with what the plugin says, word for word; later hooks are not asked."""
    m = everything(answers={topic: HookAnswer(**{what: "no luck"})})
    (answer,) = depending(m, 1, {"scheme": "moon", "value": ""})
    assert answer == "job-manager.submit -> {'errors': [[1, 'no luck']]}"
    assert m.plugins.heard[-2:] == [topic, "job.destroy"]
    assert m.names(1) == []
    assert m.stats()["states"]["new"] == 0


def test_job_goes_on_if_a_plugin_fails_in_new() -> None:
    m = everything(answers={"job.new": HookAnswer(error="plugin x failed")})
    m.submit(1)
    assert m.state(1) == JobState.SCHED


def test_job_goes_on_if_a_plugin_fails_in_update() -> None:
    m = everything(answers={"job.update": HookAnswer(error="plugin x failed")})
    m.submit(1)
    m.post(1, "jobspec-update", **{DURATION: 9})
    assert m.names(1)[-2:] == ["jobspec-update", "priority"]


def test_events_of_a_job_that_is_being_admitted_are_logged_before_validate() -> None:
    """A plugin writes defaults in job.new; job.update tells of them before job.state.depend."""
    post = ("jobspec-update", {"attributes.system.bank": "b"})
    m = everything(answers={"job.new": posting(post)})
    m.submit(1)
    assert m.names(1)[:3] == ["submit", "jobspec-update", "validate"]
    assert m.plugins.heard[2:5] == ["job.new", "job.update", "job.state.depend"]


def test_each_hook_of_admission_may_take_its_time() -> None:
    waiting = ["job.create", "job.validate", "job.dependency.moon", "job.new"]
    m = everything(hooks=waiting)
    depending(m, 1, {"scheme": "moon", "value": ""})
    for topic in waiting:
        assert list(m.plugins.asked) == [topic]
        m.answer(topic)
    assert m.state(1) == JobState.SCHED


def test_a_thousand_dependencies_are_asked_about_without_end_of_stack() -> None:
    m = everything()
    depending(m, 1, *[{"scheme": "moon", "value": str(n)} for n in range(1000)])
    assert m.plugins.heard.count("job.dependency.moon") == 1000
    assert m.state(1) == JobState.SCHED
