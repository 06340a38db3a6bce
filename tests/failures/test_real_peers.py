"""Peers in processes of their own are killed: what RFC 6, 27 and 32 make of it, for real."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import trio

from flux_trio.broker import READY
from flux_trio.client import TOKEN_VARIABLE, URI_VARIABLE, open_client
from flux_trio.config import Config
from flux_trio.messages import topics
from flux_trio.services.module_process import CONFIG_VARIABLE, module_command
from flux_trio.trace import Kind, read_trace
from tests.support.instance import DEADLINE_S, RunningInstance, environment, running_instance, until

BYTES_MAX = 1 << 16


class Wire:
    """The way of a TCP connection that a test can cut: both ends then see it closed."""

    def __init__(self, uri: str) -> None:
        to = urlsplit(uri)
        assert to.hostname is not None
        assert to.port is not None
        self._to = (to.hostname, to.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.uri = f"{to.scheme}://127.0.0.1:{self._listener.getsockname()[1]}{to.path}"
        self._go(self._accept)

    def cut(self) -> None:
        """End all connections that there are; new ones pass."""
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut, and take no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                far = socket.create_connection(self._to)
                self._ends += [near, far]
                self._go(_pass_on, near, far)
                self._go(_pass_on, far, near)

    def _go(self, main: object, *args: socket.socket) -> None:
        thread = threading.Thread(target=main, args=args)  # type: ignore[arg-type]  # as given
        self._threads.append(thread)
        thread.start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(BYTES_MAX):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
    source.close()


@contextmanager
def wire_to(uri: str) -> Iterator[Wire]:
    """A wire that is closed when the block is left."""
    wire = Wire(uri)
    try:
        yield wire
    finally:
        wire.close()


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


def test_it_is_settled_who_runs_jobs_when_an_instance_is_ready(tmp_path: Path) -> None:
    """readings: Exec override at start. Otherwise job-exec would take the place back later."""
    with running_instance(tmp_path / "state") as ready:
        assert call(ready, topics.JOB_STATS)["exec"] == {"service": topics.JOB_EXEC}


@contextmanager
def peer(
    instance: RunningInstance, role: str, wire: Wire | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A remote peer that is ready; killed with SIGKILL at the latest when the block is left."""
    uri, token = address(instance)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.support.remote_peer", role),
            *(uri if wire is None else wire.uri, token),
        ],
        cwd=Path(__file__).parents[2],
        env=environment(),
        stdin=subprocess.PIPE,
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
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


@contextmanager
def module_process(name: str, uri: str, token: str) -> Iterator[subprocess.Popen[str]]:
    """A module of ours in a process that nobody supervises, once it serves."""
    config = msgspec.json.encode(Config()).decode()
    env = environment(**{URI_VARIABLE: uri, TOKEN_VARIABLE: token, CONFIG_VARIABLE: config})
    process = subprocess.Popen(
        module_command(name), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert line(process) == READY
        yield process
    finally:
        kill(process)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def come_back(process: subprocess.Popen[str]) -> None:
    """Let one whose connection was cut speak again."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def drops(instance: RunningInstance, topic: str) -> list[str]:
    """Why messages of `topic` reached nobody, as the trace has it once the instance has ended."""
    with (instance.statedir / "trace.jsonl").open() as lines:
        return [
            str((record.data or {})["reason"])
            for record in read_trace(lines).records
            if record.kind == Kind.DROP and getattr(record.message, "topic", "") == topic
        ]


def line(process: subprocess.Popen[str]) -> str:
    """The next thing it says; "" when it is dead."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(DEADLINE_S)


def test_scheduler_that_is_killed_leaves_the_queue_to_the_next(instance: RunningInstance) -> None:
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


def test_scheduler_whose_connection_is_cut_is_another_peer_when_it_speaks_again(
    tmp_path: Path,
) -> None:
    "27.finalization.4, and 27.impl.14 for what it was asked: a stale grant reaches nobody."
    with running_instance(tmp_path) as instance, wire_to(address(instance)[0]) as wire:
        instance.ok("module", "remove", "sched")
        with peer(instance, "sched", wire) as sched:
            jobid = instance.ok("submit", "true").strip()
            assert line(sched).startswith("sched.alloc ")
            wire.cut()
            assert line(sched) == "cut"
            until(lambda: not call(instance, topics.JOB_QUEUE_STATUS)["start"])
            instance.ok("module", "load", "sched")
            instance.ok("job", "wait-event", "-q", jobid, "clean")
            come_back(sched)
            assert line(sched) == "service sched is already held by sched"
            assert call(instance, topics.JOB_QUEUE_STATUS)["start"] is True
        log = instance.ok("job", "eventlog", jobid)
        assert log.count(" alloc") == 1
    (reason,) = drops(instance, topics.SCHED_ALLOC)
    assert reason.endswith(" does not hold that service")


def test_execution_service_whose_connection_is_cut_is_another_peer_when_it_speaks_again(
    tmp_path: Path,
) -> None:
    "Its starts are the next one's, and so are the answers."
    with running_instance(tmp_path) as instance, wire_to(address(instance)[0]) as wire:
        instance.ok("module", "remove", "job-exec")
        with peer(instance, "exec", wire) as execution:
            jobid = instance.ok("submit", "true").strip()
            assert line(execution).startswith("far-exec.start ")
            wire.cut()
            assert line(execution) == "cut"
            until(lambda: call(instance, topics.JOB_STATS)["exec"]["service"] == "")
            instance.ok("module", "load", "job-exec")
            instance.ok("job", "wait-event", "-q", jobid, "clean")
            come_back(execution)
            assert line(execution) == ""  # its own name is free: it may serve under it again
        log = instance.ok("job", "eventlog", jobid)
        assert [log.count(f" {name}") for name in ("alloc", "start", "finish")] == [1, 1, 1]
    (reason,) = drops(instance, "far-exec.start")
    assert reason.endswith(" does not hold that service")


def test_module_in_a_process_whose_connection_is_cut_ends_and_says_why(tmp_path: Path) -> None:
    with running_instance(tmp_path) as instance, wire_to(address(instance)[0]) as wire:
        instance.ok("module", "remove", "sched")
        with module_process("sched", wire.uri, address(instance)[1]) as process:
            instance.ok("run", "true")
            wire.cut()
            assert process.wait(DEADLINE_S) == 1
            assert process.stderr is not None
            assert process.stderr.read().startswith("the connection broke: ")
            until(lambda: not call(instance, topics.JOB_QUEUE_STATUS)["start"])
        instance.ok("module", "load", "sched")
        instance.ok("run", "true")


def test_execution_service_that_is_killed_leaves_its_starts_to_the_next(
    instance: RunningInstance,
) -> None:
    "readings: Exec override. Reattach is false, since it never said that the job had started."
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
    instance: RunningInstance, tmp_path: Path
) -> None:
    go_on = tmp_path / "go"
    wait = f"until [ -e {go_on} ]; do sleep 0.02; done"
    process = instance.popen("run", "--job-name=left", "sh", "-c", wait)
    until(lambda: "left" in instance.ok("jobs", "-n"))
    jobid = instance.ok("jobs", "-n", "-o", "{id.f58plain}").strip()
    kill(process)
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    with peer(instance, "client") as follower:
        kill(follower)
    go_on.touch()
    instance.ok("job", "wait-event", "-q", jobid, "clean")
    assert "exception" not in instance.ok("job", "eventlog", jobid)
