"""Waiting for queues to become empty or idle (RFC 33, Administrative Tools)."""

from __future__ import annotations

from flux_trio.messages import topics
from tests.support.asking import asked, asked_by_guest
from tests.support.manager_script import ManagerScript


def test_drain_waits_until_no_job_of_the_queue_is_active(two: ManagerScript) -> None:
    """33.admin.8"""
    two.running(1, queue="debug")
    two.submit(2)
    assert two.ask(topics.JOB_DRAIN, {"name": "debug"}) == []
    two.submit(3, queue="debug", urgency=0)
    two.execute(1, "finish", "release final")
    assert two.freed(1) == []
    assert two.raise_(3)[-1] == "job-manager.drain -> {}"


def test_drain_of_all_waits_for_every_queue(two: ManagerScript) -> None:
    """33.admin.9"""
    two.submit(1, urgency=0)
    two.submit(2, queue="debug", urgency=0)
    assert two.ask(topics.JOB_DRAIN) == []
    assert "job-manager.drain -> {}" not in two.raise_(1)
    assert "job-manager.drain -> {}" in two.raise_(2)


def test_idle_waits_for_run_and_cleanup_and_for_nothing_else(two: ManagerScript) -> None:
    """33.admin.10: jobs that wait are counted and not waited for."""
    two.running(1, queue="debug")
    two.running(2)
    two.submit(3, queue="debug", urgency=0)
    assert two.ask(topics.JOB_IDLE, {"name": "debug"}) == []
    assert "job-manager.idle" not in str(two.raise_(1))  # in CLEANUP
    two.execute(1, "release final")
    assert two.freed(1)[-1] == "job-manager.idle -> {'pending': 1}"


def test_idle_of_all_waits_for_every_queue(two: ManagerScript) -> None:
    """33.admin.11"""
    for jobid, queue in ((1, "batch"), (2, "debug")):
        two.running(jobid, queue=queue)
    assert two.ask(topics.JOB_IDLE) == []
    for jobid, last in ((1, "clean"), (2, "job-manager.idle -> {'pending': 0}")):
        two.execute(jobid, "finish", "release final")
        said = two.freed(jobid)
        assert two.names(jobid)[-1] == "clean"
        assert (last in said) == (jobid == 2)


def test_nobody_waits_for_a_queue_that_is_as_wanted(two: ManagerScript) -> None:
    assert two.ask(topics.JOB_DRAIN) == ["job-manager.drain -> {}"]
    assert two.ask(topics.JOB_IDLE) == ["job-manager.idle -> {'pending': 0}"]


def test_who_is_gone_waits_no_more(two: ManagerScript) -> None:
    two.submit(1, urgency=0)
    two.put(asked(topics.JOB_DRAIN, by="bob"))
    two.gone("bob")
    assert "job-manager.drain -> {}" not in two.raise_(1)


def test_guests_may_wait(two: ManagerScript) -> None:
    assert two.put(asked_by_guest(topics.JOB_DRAIN)) == ["job-manager.drain -> {}"]
