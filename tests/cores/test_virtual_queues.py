"""Virtual queues (flux-config-queues(5)): other names, with other policies, for a queue's jobs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from flux_trio.config import CONSTRAINTS_KEY, QUEUE_KEY, JobSize, parse_config
from flux_trio.formats import ResourceSet
from flux_trio.messages import topics
from flux_trio.protocols import JobState
from flux_trio.testing.pytest_plugin import StartHarness
from tests.support.configured import refusal_of
from tests.support.eventlogs import pending
from tests.support.listing import ListedJobs
from tests.support.manager_script import ManagerScript, allocs
from tests.support.sched_script import SchedScript, alloc, jobspec

SITE = parse_config("""
[policy]
jobspec.defaults.system = { duration = "5m", queue = "batch" }
limits.job-size.max.ngpus = 4

[queues.batch]
requires = ["batch"]
policy.limits = { duration = "8h", job-size.max.nnodes = 16 }

[queues.expedite]
parent = "batch"
policy.limits.duration = "1h"
""")


def status(m: ManagerScript, name: str) -> dict[str, Any]:
    m.ask(topics.JOB_QUEUE_STATUS, {"name": name})
    payload: dict[str, Any] = m.last(topics.JOB_QUEUE_STATUS).payload
    return payload


def test_what_a_virtual_queue_does_not_set_is_its_parents() -> None:
    limits = SITE.policy_for("expedite").limits
    assert limits.duration == 3600.0
    assert limits.max == JobSize(16, math.inf, 4)
    assert SITE.policy_for("batch").limits.duration == 8 * 3600.0
    assert SITE.constraint_for("expedite") == SITE.constraint_for("batch")


def test_its_jobs_keep_its_name_and_get_the_parents_resources() -> None:
    m = ManagerScript(config=SITE, peers=True)
    m.submit(1, queue="expedite")
    update = m.context(1, "jobspec-update")
    assert update[CONSTRAINTS_KEY] == {"properties": ["batch"]}
    assert QUEUE_KEY not in update


def test_its_jobs_wait_until_it_and_its_parent_are_started() -> None:
    m = ManagerScript(config=SITE, peers=True)
    m.queue("batch", start=False, reason="maintenance")
    assert allocs(m.submit(1, queue="expedite")) == []
    assert status(m, "expedite") == {
        "enable": True,
        "start": False,
        "stop_reason": "maintenance",
        "blocked": "parent",
        "parent": "batch",
    }
    m.queue("expedite", start=False)
    assert allocs(m.queue("batch", start=True)) == []
    assert "blocked" not in status(m, "expedite")
    assert allocs(m.queue("expedite", start=True)) == [1]
    assert status(m, "batch") == {"enable": True, "start": True}
    assert status(m, "expedite") == {"enable": True, "start": True, "parent": "batch"}


def test_the_parent_that_is_stopped_is_the_reason_for_which_a_job_waits(
    plugin_harness: StartHarness,
) -> None:
    harness = plugin_harness(config=SITE)
    harness.request(topics.JOB_QUEUE_START, {"start": False, "name": "batch", "reason": "why"})
    job = harness.submit(attributes={"system.queue": "expedite"})
    found = harness.request(topics.JOB_EXPLAIN, {"id": job.id})
    assert found["waits"] == ["queue batch is stopped: why"]


def test_its_jobs_are_in_one_order_with_those_of_its_parent() -> None:
    """A job of a real queue would not wait for the first job of another queue."""
    script = SchedScript(queues={"batch": "fifo", "v": "fifo"}, parents={"v": "batch"})
    script.attach(ResourceSet.build([(0, 0b11, 0)], lambda rank: f"node{rank}"))
    script.turn(alloc(1, jobspec(1, queue="batch")))
    script.turn(alloc(2, jobspec(2, queue="batch")), alloc(3, jobspec(1, queue="v")))
    assert script.core.holders == {1}
    script.turn(alloc(4, jobspec(1, queue="other")))
    assert script.core.holders == {1, 4}


@pytest.mark.parametrize("topic", [topics.JOB_DRAIN, topics.JOB_IDLE])
def test_waiting_for_a_virtual_queue_is_refused(topic: str) -> None:
    """readings: Waiting on a virtual queue."""
    m = ManagerScript(config=SITE, peers=True)
    m.submit(1, queue="expedite")
    refused = f"{topic} -> EINVAL queue expedite is virtual: wait for its parent batch"
    assert m.ask(topic, {"name": "expedite"}) == [refused]


def test_waiting_for_a_queue_is_for_its_virtual_queues_too() -> None:
    m = ManagerScript(config=SITE, peers=True)
    m.submit(1, queue="expedite")
    assert m.ask(topics.JOB_DRAIN, {"name": "batch"}) == []
    assert m.ask(topics.JOB_IDLE, {"name": "batch"}) == ["job-manager.idle -> {'pending': 1}"]


def test_a_list_of_a_queue_has_the_jobs_of_its_virtual_queues() -> None:
    listed = ListedJobs(SITE)
    for jobid, queue in ((1, "batch"), (2, "expedite")):
        listed.store_log(jobid, pending())
        listed.store_jobspec(jobid, queue=queue)
    listed.start()

    def ids(**wanted: object) -> list[int]:
        ((_, payload),) = listed.ask(topics.LIST_LIST, wanted)
        return [job["id"] for job in payload["jobs"]]

    assert ids() == ids(queues=["batch"]) == [1, 2]
    assert ids(queues=["expedite"]) == [2]
    assert ids(queues=["batch"], states=JobState.INACTIVE) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "[queues.v]\nparent = 'nosuch'",
            'queues.v.parent: expected a queue without a parent: there is none, got "nosuch"',
        ),
        (
            "[queues.a]\n[queues.v]\nparent = 'a'\n[queues.w]\nparent = 'v'",
            'queues.w.parent: expected a queue without a parent: a, got "v"',
        ),
        (
            "[queues.a]\n[queues.v]\nparent = 'a'\nrequires = ['x']",
            "queues.v.requires: expected no requires beside parent, "
            "whose resources and scheduler it has, got ['x']",
        ),
        (
            "[queues.a]\n[queues.v]\nparent = 'a'\npolicy.scheduler.policy = 'easy'",
            "queues.v.policy.scheduler: expected no policy.scheduler beside parent, "
            "whose resources and scheduler it has, got {'policy': 'easy'}",
        ),
    ],
)
def test_what_a_virtual_queue_cannot_have_is_refused(text: str, complaint: str) -> None:
    """33.virtual.1"""
    assert refusal_of(text) == f"config.{complaint}"
