"""The job manager's queues: where a job goes, what stops and starts, what survives, who waits."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.config import CONSTRAINTS_KEY, DURATION_KEY, QUEUE_KEY, Config, parse_config
from flux_trio.messages import Errno, Response, topics
from flux_trio.protocols import VALIDATE, AskHook, HookAnswer, JobState
from tests.support.asking import asked_by_guest
from tests.support.manager_script import CANCEL, ManagerScript, allocs
from tests.support.queue_script import TWO, queue_status, refusals

CHANGED = parse_config("""
[policy.jobspec.defaults.system]
queue = "batch"

[queues.batch]
requires = { properties = ["other"] }
""")
ONE = parse_config("[queues.only]")
BATCH = {"properties": ["batch"]}


# --- how a job gets into its queue


def test_what_the_job_did_not_say_is_a_jobspec_update_before_validation(two: ManagerScript) -> None:
    """33.assignment.2, 33.defaults.6, 33.defaults.7, 33.defaults.9, 33.queues.4: in sched.alloc."""
    stored = two.submission(1)
    two.put(stored)
    assert two.names(1)[:3] == ["submit", "jobspec-update", "validate"]
    assert two.context(1, "jobspec-update") == {
        QUEUE_KEY: "batch",
        DURATION_KEY: 600.0,
        CONSTRAINTS_KEY: BATCH,
    }
    system = two.last(topics.SCHED_ALLOC).payload["jobspec"]["attributes"]["system"]
    named = [system.get(key) for key in ("queue", "duration", "constraints")]
    assert named == ["batch", 600.0, BATCH]


def test_what_the_job_says_stands(two: ManagerScript) -> None:
    """33.defaults.1, 33.assignment.1: and nothing is logged where nothing is added."""
    two.submit(1, queue="debug", duration=5.0)
    assert "jobspec-update" not in two.names(1)


def test_plugins_see_the_queue_when_they_validate() -> None:
    """33.assignment.3"""
    seen = []

    def validate(question: AskHook) -> HookAnswer:
        assert question.job is not None
        seen.append(question.job.current_jobspec_bytes())
        return HookAnswer()

    m = ManagerScript(config=TWO, answers={VALIDATE: validate})
    m.submit(1)
    assert b'"queue":"batch"' in seen[0]
    assert b'"constraints":{"properties":["batch"]}' in seen[0]


@pytest.mark.parametrize(
    ("config", "queue", "text"),
    [
        (TWO, "nosuch", "Invalid queue 'nosuch' specified"),
        (Config(), "batch", "Invalid queue 'batch' specified"),
        (ONE, None, "a named queue is required"),
    ],
)
def test_unknown_queue_is_refused(config: Config, queue: str | None, text: str) -> None:
    """33.validation.1, 33.impl.3, 33.impl.4"""
    m = ManagerScript(config=config)
    m.submit(1, queue=queue, duration=1.0)
    assert refusals(m) == [[1, text]]
    assert m.stats()["states"]["new"] == 0


def test_refused_job_has_no_part_in_those_that_are_taken(two: ManagerScript) -> None:
    """33.validation.4"""
    first, other = two.submission(1), two.submission(2, queue="nosuch")
    jobs = [*first.payload["jobs"], *other.payload["jobs"]]  # type: ignore[index,call-overload]
    two.ask(topics.JOB_SUBMIT, {"jobs": jobs})
    assert [jobid for jobid, _ in refusals(two)] == [2]
    assert two.state(1) == JobState.SCHED


def test_job_not_acknowledged_before_a_restart_is_assigned_once() -> None:
    """33.assignment.2: what its queue required then is what it keeps."""
    m = ManagerScript(config=TWO, hooks=[VALIDATE])
    m.submit(1)
    again = m.restarted(config=TWO)
    assert again.names(1).count("jobspec-update") == 1
    assert again.state(1) == JobState.SCHED
    m = ManagerScript(config=TWO, hooks=[VALIDATE])
    m.submit(1)
    changed = m.restarted(config=CHANGED)
    assert changed.names(1).count("jobspec-update") == 1
    assert changed.context(1, "jobspec-update")[CONSTRAINTS_KEY] == BATCH
    m = ManagerScript(config=TWO, hooks=[VALIDATE])
    m.submit(1)
    other = m.restarted(config=parse_config("[queues.other]"))
    assert not [name for name in other.kvs.stored() if name.startswith("job.")]


# --- access


# --- enable and disable


def test_disabled_queue_refuses_with_its_reason_and_goes_on_with_its_jobs(
    two: ManagerScript,
) -> None:
    """33.admin.1, 33.admin.3"""
    two.submit(1, urgency=0)
    two.enable("batch", enable=False, reason="closed")
    two.submit(2)
    assert refusals(two) == [[2, "job submission to batch is disabled: closed"]]
    two.submit(3, queue="debug")
    assert two.state(3) == JobState.SCHED
    assert allocs(two.urgency(1, 16)) == [1]
    assert queue_status(two, "batch") == {
        "enable": False,
        "start": True,
        "disable_reason": "closed",
    }
    two.enable("batch")
    two.submit(4)
    assert refusals(two) == []
    assert queue_status(two, "batch") == {"enable": True, "start": True}


def test_all_queues_are_disabled_and_enabled_at_once(two: ManagerScript) -> None:
    """33.admin.2"""
    two.enable(enable=False, reason="closed")
    for jobid, queue in ((1, "batch"), (2, "debug")):
        two.submit(jobid, queue=queue)
        assert refusals(two) == [[jobid, f"job submission to {queue} is disabled: closed"]]
    two.enable()
    two.submit(3, queue="batch")
    two.submit(4, queue="debug")
    assert [two.state(jobid) for jobid in (3, 4)] == [JobState.SCHED] * 2


def test_anonymous_queue_is_disabled_without_a_name() -> None:
    """33.impl.3: flux-core's words have no name then."""
    m = ManagerScript()
    m.ask(topics.JOB_QUEUE_ENABLE, {"enable": False, "all": False, "reason": "no more jobs"})
    m.submit(1)
    assert refusals(m) == [[1, "job submission is disabled: no more jobs"]]


# --- start and stop


def test_stopped_queue_is_sent_to_no_scheduler_and_the_other_goes_on(two: ManagerScript) -> None:
    """14.attributes.5, 33.admin.4, 33.admin.6, 33.admin.7, 33.background.1-2: it takes jobs as
    before.
    """
    two.submit(1, 2)
    two.submit(3, queue="debug")
    assert two.queue("batch", start=False, reason="maintenance") == [
        "sched.cancel 1",
        "sched.cancel 2",
        "job-manager.queue-start -> {}",
    ]
    two.alloc(1, CANCEL)
    two.alloc(2, CANCEL)
    assert allocs(two.submit(4)) == []
    assert allocs(two.submit(5, queue="debug")) == [5]
    two.urgency(2, 20)
    assert queue_status(two, "batch") == {
        "enable": True,
        "start": False,
        "stop_reason": "maintenance",
    }
    assert queue_status(two, "debug") == {"enable": True, "start": True}
    assert allocs(two.queue("batch", start=True)) == [2, 1, 4]


def test_all_queues_stop_and_start_at_once(two: ManagerScript) -> None:
    """33.admin.5"""
    two.submit(1)
    two.submit(2, queue="debug")
    assert two.queue(start=False)[:2] == ["sched.cancel 1", "sched.cancel 2"]
    for jobid in (1, 2):
        two.alloc(jobid, CANCEL)
    assert sorted(allocs(two.queue(start=True))) == [1, 2]


def test_no_scheduler_hears_of_a_stopped_queue(two: ManagerScript) -> None:
    """33.criteria.5, 33.admin.7: not the next one either."""
    two.queue("batch", start=False)
    two.submit(1)
    two.gone("sched")
    assert allocs(two.attach_sched()) == []
    sent = [message.topic for message in two.messages if message.topic.startswith("sched.")]
    assert sent == []


def test_job_moved_into_a_stopped_queue_is_taken_back(two: ManagerScript) -> None:
    """33.admin.7"""
    two.queue("debug", start=False)
    two.submit(1)
    assert "sched.cancel 1" in two.post(1, "jobspec-update", **{QUEUE_KEY: "debug"})
    assert allocs(two.alloc(1, CANCEL)) == []
    assert allocs(two.queue("debug", start=True)) == [1]


def test_queue_may_begin_stopped() -> None:
    """As all named queues of flux-core do."""
    m = ManagerScript(config=parse_config("[queues.only]\nstarted = false"), peers=True)
    assert allocs(m.submit(1, queue="only")) == []
    assert allocs(m.queue("only", start=True)) == [1]


def test_queue_without_a_scheduler_says_so() -> None:
    m = ManagerScript(config=TWO)
    offline = {"enable": True, "start": False, "stop_reason": "Scheduler is offline"}
    assert queue_status(m, "batch") == {**offline, "blocked": "scheduler"}
    m.queue("batch", start=False, reason="why")
    assert queue_status(m, "batch") == offline


def test_queue_says_what_a_scheduler_did_that_was_dropped() -> None:
    m = ManagerScript(peers=True)
    m.submit(1)
    m.put(Response("sched.alloc", "no", int(Errno.EPROTO)))
    assert queue_status(m, None)["stop_reason"] == (
        "Scheduler has broken the protocol: sched.alloc: no"
    )
    m.gone("sched")
    m.hello()
    m.ready()
    assert "stop_reason" not in queue_status(m, None)


# --- what is asked


@pytest.mark.parametrize(
    ("topic", "payload", "text"),
    [
        (topics.JOB_QUEUE_START, {"start": False}, "Use --all to apply this command to all queues"),
        (topics.JOB_QUEUE_ENABLE, {"enable": True}, "Use --all to apply this command to all queue"),
        (topics.JOB_QUEUE_START, {"start": True, "name": "x"}, "'x' is not a valid queue"),
        (topics.JOB_QUEUE_ENABLE, {"enable": False}, "reason is required for disable"),
        (topics.JOB_QUEUE_STATUS, {}, "a named queue is required"),
        (topics.JOB_QUEUE_STATUS, {"name": "x"}, "'x' is not a valid queue"),
        (topics.JOB_DRAIN, {"name": "x"}, "'x' is not a valid queue"),
        (topics.JOB_IDLE, {"name": "x"}, "'x' is not a valid queue"),
    ],
)
def test_what_cannot_be_done_is_said_in_flux_cores_words(
    two: ManagerScript, topic: str, payload: dict[str, Any], text: str
) -> None:
    (line,) = two.ask(topic, payload)
    assert line.startswith(f"{topic} -> EINVAL {text}")


def test_queues_are_listed_with_the_default(two: ManagerScript) -> None:
    """33.criteria.4, 33.impl.3-4: the anonymous queue has no name."""
    two.put(asked_by_guest(topics.JOB_QUEUE_LIST))
    listed = two.last(topics.JOB_QUEUE_LIST).payload
    assert listed == {"queues": ["batch", "debug"], "default": "batch"}
    m = ManagerScript()
    m.ask(topics.JOB_QUEUE_LIST)
    assert m.last(topics.JOB_QUEUE_LIST).payload == {"queues": []}


def test_guests_look_and_do_not_change(two: ManagerScript) -> None:
    for topic in (topics.JOB_QUEUE_START, topics.JOB_QUEUE_ENABLE):
        (line,) = two.put(asked_by_guest(topic, {"start": False, "enable": True, "all": True}))
        assert "EPERM" in line
    two.put(asked_by_guest(topics.JOB_QUEUE_STATUS, {"name": "batch"}))
    assert two.last(topics.JOB_QUEUE_STATUS).payload["enable"] is True


# --- restart


# --- a new configuration
