"""Peers in processes of their own are killed: what RFC 6, 27 and 32 make of it, for real."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from flux_trio.client import open_client
from flux_trio.messages import topics
from tests.support.instance import DEADLINE_S, RunningInstance, environment, running_instance

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    with running_instance(tmp_path_factory.mktemp("real")) as running:
        yield running


def address(instance: RunningInstance) -> tuple[str, str]:
    return (
        (instance.statedir / "uri").read_text().strip(),
        (instance.statedir / "token").read_text().strip(),
    )


def call(instance: RunningInstance, topic: str, payload: Any = None) -> Any:
    async def ask() -> Any:
        async with open_client(*address(instance)) as client:
            return await client.call(topic, payload)

    return trio.run(ask)


def until(claim: Callable[[], bool]) -> None:
    """Ask again until it holds."""
    given_up = time.monotonic() + DEADLINE_S
    while not claim():
        assert time.monotonic() < given_up


@contextmanager
def peer(instance: RunningInstance, role: str) -> Iterator[subprocess.Popen[str]]:
    """A remote peer that is ready; killed with SIGKILL at the latest when the block is left."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.remote_peer", role, *address(instance)],
        cwd=Path(__file__).parents[2],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = threading.Timer(DEADLINE_S, process.kill)  # then `line` has "" and the test fails
    deadline.start()
    try:
        assert line(process) == "ready"
        yield process
    finally:
        deadline.cancel()
        kill(process)
        assert process.stdout is not None
        process.stdout.close()


def line(process: subprocess.Popen[str]) -> str:
    """The next thing it says; "" when it is dead."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(DEADLINE_S)


def test_scheduler_that_is_killed_leaves_the_queue_to_the_next(
    instance: RunningInstance,
) -> None:
    "27.criteria.3, and ENOSYS to nobody: the job is asked for again."
    instance.ok("module", "remove", "sched")
    with peer(instance, "sched") as sched:
        jobid = instance.ok("submit", "true").strip()
        assert line(sched).startswith("sched.alloc ")
        assert call(instance, topics.JOB_QUEUE_STATUS)["start"] is True
        kill(sched)
        until(lambda: not call(instance, topics.JOB_QUEUE_STATUS)["start"])
        status = call(instance, topics.JOB_QUEUE_STATUS)
        assert (status["blocked"], status["stop_reason"]) == ("scheduler", "Scheduler is offline")
        assert "Scheduler is offline" in instance.ok("jobs", "-n", "-o", "{contextual_info}")
    instance.ok("module", "load", "sched")
    instance.ok("job", "wait-event", "-q", jobid, "clean")


def test_execution_service_that_is_killed_leaves_its_starts_to_the_next(
    instance: RunningInstance,
) -> None:
    "Readings, Exec override: reattach is false, since it never said that the job had started."
    instance.ok("module", "remove", "job-exec")
    with peer(instance, "exec") as execution:
        jobid = instance.ok("submit", "true").strip()
        assert line(execution).startswith("far-exec.start ")
        kill(execution)
        until(lambda: call(instance, topics.JOB_STATS)["exec"]["service"] == "")
    instance.ok("module", "load", "job-exec")
    instance.ok("job", "wait-event", "-q", jobid, "clean")
    log = instance.ok("job", "eventlog", jobid)
    assert [log.count(f" {name}") for name in ("alloc", "start", "finish")] == [1, 1, 1]


def test_client_that_is_killed_leaves_its_jobs_and_nothing_else(
    instance: RunningInstance,
) -> None:
    process = instance.popen("run", "sleep", "1")
    until(lambda: "sleep" in instance.ok("jobs", "-n"))
    jobid = instance.ok("jobs", "-n", "-o", "{id.f58plain}").strip()
    kill(process)
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    with peer(instance, "client") as follower:
        kill(follower)
    instance.ok("job", "wait-event", "-q", jobid, "clean")
    assert "exception" not in instance.ok("job", "eventlog", jobid)
