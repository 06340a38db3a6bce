"""`flux-trio queue`: the words, and a queue that is stopped and started."""

from __future__ import annotations

import pytest

from flux_trio.cli.commands.queue import count_lines, status_lines
from tests.support.instance import RunningInstance


def test_a_queue_that_moves() -> None:
    told = {"enable": True, "start": True}
    assert status_lines(told) == ["Job submission is enabled", "Scheduling is started"]


def test_why_nothing_moves() -> None:
    told = {
        "enable": True,
        "start": False,
        "stop_reason": "Scheduler is offline",
        "blocked": "scheduler",
        "silent": ["job-exec has not answered for 3 s"],
    }
    assert status_lines(told) == [
        "Job submission is enabled",
        "Scheduling is stopped: Scheduler is offline",
        "job-exec has not answered for 3 s",
    ]


def test_counts() -> None:
    stats = {"states": {"run": 2, "cleanup": 1}, "sched": {"waiting": 4, "outstanding": 5}}
    assert count_lines(stats) == [
        "4 alloc requests queued",
        "5 alloc requests pending to scheduler",
        "3 running jobs",
    ]


@pytest.mark.real
def test_a_stopped_queue_starts_no_job(instance: RunningInstance) -> None:
    assert instance.ok("queue", "stop").splitlines()[1] == "Scheduling is stopped"
    jobid = instance.ok("submit", "true").strip()
    instance.ok("job", "wait-event", "-q", jobid, "priority")
    assert instance.ok("queue", "start").splitlines()[1] == "Scheduling is started"
    instance.ok("job", "wait-event", "-q", jobid, "clean")
    assert "0 running jobs" in instance.ok("queue", "status", "-v")
    assert instance.ok("queue", "stop", "-q") == ""
    instance.ok("queue", "start", "-q")


@pytest.mark.real
def test_a_missing_scheduler_is_the_reason(instance: RunningInstance) -> None:
    instance.ok("module", "remove", "sched")
    try:
        assert "Scheduling is stopped: Scheduler is offline" in instance.ok("queue", "status")
    finally:
        instance.ok("module", "load", "sched")
