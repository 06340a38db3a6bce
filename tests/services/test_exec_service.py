"""The exec service on a broker, with a kvs beside it and a job manager played by the test."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from flux_trio.broker import Handle
from flux_trio.config import ExecConfig
from flux_trio.formats import job_key, parse_eventlog
from flux_trio.messages import Event, Request, Response, respond, respond_stream, topics
from flux_trio.services import exec as exec_service
from flux_trio.services import kvs
from flux_trio.store.stores import MemoryStore
from tests.support.exec_script import jobspec, r_text, resources
from tests.support.kvs_words import commit_of, lookup_of, value_of
from tests.support.serving import Client, World
from tests.support.shell import MARK, TEST_S_MAX, hosts, no_process_left, tasks, until

pytestmark = pytest.mark.real

RELEASE = ("release", {"ranks": "0", "final": True})


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "shell"
    with no_process_left(path):
        yield path


class Manager:
    """The job manager's side of RFC 32, as far as these tests need it."""

    def __init__(self, world: World, directory: Path | None) -> None:
        self.handle = world.handle("job-manager")
        self.handle.register("job-manager")
        self.client: Client = world.client("user")
        self._directory = directory
        self._answers: list[dict[str, Any]] = []
        self._journal: Request | None = None  # asked for by the latest exec service
        self._has_accepted = False  # the hello of the latest exec service
        self.reason = ""  # why jobs wait for the exec service, as it has said

    async def start(
        self, jobid: int, *command: str, reattach: bool = False, **options: Any
    ) -> None:
        """Put R where it belongs and ask for the job."""
        environment = {"PATH": "/usr/bin:/bin", MARK: str(self._directory)}
        spec = jobspec(*command, environment=environment, cwd="/", **options)
        text = r_text(resources(starttime=0.0 if reattach else 1e9))
        put = commit_of(["put", job_key(jobid, "R"), text])
        await self.client.ask("kvs.commit", put)
        payload = {"id": jobid, "userid": 1000, "jobspec": spec, "reattach": reattach}
        self.handle.send(Request("job-exec.start", payload))

    async def told(self) -> tuple[str, dict[str, Any]]:
        """The next answer to a start; hello is accepted, and the journal begun, on the way.

        A release is in the journal at once: here nothing is stored that could be late.
        """
        while not self._answers:
            await self._take()
        answer_payload = self._answers.pop(0)
        if answer_payload["type"] == "release":
            event = {"timestamp": 1.0, "name": "release", "context": answer_payload["data"]}
            self._log([[answer_payload["id"], 0, event]])
        return answer_payload["type"], answer_payload["data"]

    async def accept(self) -> None:
        """Await the hello of an exec service that was just started, and accept it."""
        self._has_accepted = False
        while not self._has_accepted:
            await self._take()

    async def until_reason(self, condition: Callable[[str], bool]) -> None:
        """Await that `condition` is true of why jobs wait, which is "" when none does."""
        while not condition(self.reason):
            await self._take()

    async def _take(self) -> None:
        """Take what has come."""
        for message in await self.handle.receive():
            if isinstance(message, Response):
                assert isinstance(message.payload, dict)
                self._answers.append(message.payload)
            elif not isinstance(message, Request):
                pass
            elif message.topic == topics.EXEC_HELLO:
                answer = respond(message)
                assert answer is not None
                self.handle.send(answer)
                self._has_accepted = True
            elif message.topic == topics.JOB_JOURNAL:
                self._journal = message
                self._log([])
            elif message.topic == topics.JOB_HINDRANCE:
                assert isinstance(message.payload, dict)
                self.reason = message.payload["reason"]

    def _log(self, entries: list[Any]) -> None:
        if self._journal is not None:
            response = respond_stream(self._journal, {"events": entries})
            assert response is not None
            self.handle.send(response)

    def cancel(self, jobid: int) -> None:
        """Publish a fatal exception."""
        payload = {"id": jobid, "type": "cancel", "severity": 0}
        self.handle.send(Event("job-exception", payload))


class Instance:
    """A broker and its kvs; exec services come and go."""

    def __init__(self, world: World, directory: Path | None) -> None:
        self.world = world
        self.directory = directory
        self.manager = Manager(world, directory)

    @asynccontextmanager
    async def exec(self) -> AsyncIterator[None]:
        """An exec service whose hello is accepted."""

        async def serve(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
            await exec_service.run(
                handle,
                directory=self.directory,
                config=ExecConfig(kill_timeout="0.1s"),
                environment={"FLUX_URI": "ws://here"},
                task_status=task_status,
            )

        async with self.world.serving("exec", serve):
            await self.manager.accept()
            yield


@asynccontextmanager
async def instance(directory: Path | None) -> AsyncIterator[Instance]:
    world, store = World(), MemoryStore()

    async def serve_kvs(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        await kvs.run(handle, lambda: store, task_status=task_status)

    with trio.fail_after(TEST_S_MAX):
        async with world.serving("kvs", serve_kvs):
            yield Instance(world, directory)


async def test_real_job_from_start_to_release(directory: Path) -> None:
    """32.start.17, 32.start.31, 32.start.36, 16.schema.11: what it wrote is in the KVS."""
    async with instance(directory) as world, world.exec():
        manager = world.manager
        await manager.start(7, "sh", "-c", "echo to $FLUX_URI; exit 3")
        assert await manager.told() == ("start", {})
        assert await manager.told() == ("finish", {"status": 768})
        assert await manager.told() == RELEASE
        log = await manager.client.ask("kvs.lookup", lookup_of(job_key(7, "guest.output")))
        data = [event.context for event in parse_eventlog(value_of(log))][1]
        assert data == {"stream": "stdout", "rank": "0", "data": "to ws://here\n"}
        await until(lambda: list((directory / "jobs").iterdir()) == [])  # acknowledged


async def test_output_is_followed_while_it_is_written(directory: Path) -> None:
    async with instance(directory) as world, world.exec():
        manager = world.manager
        await manager.start(
            7,
            "sh",
            "-c",
            "echo one; until [ -e $0 ]; do sleep 0.01; done; echo two",
            f"{directory}/go",
        )
        assert await manager.told() == ("start", {})
        await manager.client.ask("job-exec.copy", {"id": 7})
        assert await _data(manager) == ["one\n"]
        (directory / "go").touch()
        assert await manager.told() == ("finish", {"status": 0})
        assert await _data(manager) == ["one\n", "two\n"]


async def _data(manager: Any) -> list[str]:
    """What is stored of the standard output of job 7."""
    log = await manager.client.ask("kvs.lookup", lookup_of(job_key(7, "guest.output")))
    contexts = [event.context or {} for event in parse_eventlog(value_of(log))]
    return [context["data"] for context in contexts if "data" in context]


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
async def test_what_takes_the_place_of_an_output_file_holds_up_no_job(
    directory: Path, put: Callable[[Path], None]
) -> None:
    async with instance(directory) as world, world.exec():
        manager = world.manager
        await manager.start(
            7, "sh", "-c", "until [ -e $0 ]; do sleep 0.01; done", f"{directory}/go"
        )
        assert await manager.told() == ("start", {})
        output = directory / "jobs" / "7.0.out"
        output.unlink()
        put(output)
        manager.client.send("job-exec.copy", {"id": 7})
        (directory / "go").touch()
        assert [(await manager.told())[0] for _ in range(2)] == ["finish", "release"]
        await manager.start(8, "true")
        assert [(await manager.told())[0] for _ in range(3)] == ["start", "finish", "release"]


async def test_canceled_job_that_ignores_sigterm_is_killed_after_the_grace(directory: Path) -> None:
    async with instance(directory) as world, world.exec():
        manager = world.manager
        await manager.start(7, "sh", "-c", "trap '' TERM; sleep 100 & echo up; wait; wait")
        assert await manager.told() == ("start", {})
        await until(lambda: len(tasks(directory)) == 2)
        manager.cancel(7)
        status = 128 + signal.SIGKILL << 8  # of its shell, which exits so
        assert await manager.told() == ("finish", {"status": status})
        assert await manager.told() == RELEASE
        await until(lambda: not tasks(directory))


async def test_job_waits_while_the_shell_host_can_start_none_and_goes_on_by_itself(
    directory: Path,
) -> None:
    """A host that lacks something is no failure of the jobs that are given to it."""
    async with instance(directory) as world, world.exec():
        manager = world.manager
        await manager.start(7, "true")
        while await manager.told() != RELEASE:
            pass
        (host,) = hosts(directory)
        limits = resource.prlimit(host, resource.RLIMIT_NOFILE)
        resource.prlimit(host, resource.RLIMIT_NOFILE, (0, limits[1]))
        for jobid in (8, 9):
            await manager.start(jobid, "echo", "here")
        await manager.until_reason(lambda reason: "Too many open files" in reason)
        resource.prlimit(host, resource.RLIMIT_NOFILE, limits)
        told = sorted([await manager.told() for _ in range(6)], key=str)
        assert told == [("finish", {"status": 0})] * 2 + [RELEASE] * 2 + [("start", {})] * 2
        await manager.until_reason(lambda reason: not reason)


async def test_simulated_job_needs_no_directory() -> None:
    async with instance(None) as world, world.exec():
        manager = world.manager
        await manager.start(7, test={"run_duration": 0.001})
        assert await manager.told() == ("start", {})
        assert await manager.told() == ("finish", {"status": 0})
        assert await manager.told() == RELEASE
        await manager.start(8, "true")
        assert (await manager.told())[0] == "exception"
