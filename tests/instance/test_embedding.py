"""An instance in another program: under Trio, and beside asyncio."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

from docs.make_samples import DOCS
from flux_trio import embedding, jobtap
from flux_trio.client import ClientError, command_jobspec
from flux_trio.embedding import Embedded, InstanceFailed, open_instance, start_instance
from flux_trio.formats import FormatError, Jobspec
from flux_trio.instance import Instance
from flux_trio.messages import FluxError
from flux_trio.store.sqlite_store import SqliteStore
from tests.support.instance import DEADLINE_S

pytestmark = pytest.mark.real

SAMPLES = DOCS / "howto" / "embedding"
Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=["trio", "asyncio"])
def run(request: pytest.FixtureRequest) -> Run:
    def run(main: Callable[[], Awaitable[None]]) -> None:
        async def limited() -> None:
            with anyio.fail_after(DEADLINE_S):
                await main()

        anyio.run(limited, backend=request.param)

    return run


ONE_HOST = pytest.mark.parametrize("run", ["asyncio"], indirect=True)
"""For what does not depend on the loop of the host."""


class Refusing(jobtap.Plugin):
    name = "refusing"

    @jobtap.on("job.validate")
    def validate(self, job: jobtap.Job) -> None:
        if job.jobspec.nnodes == 3:
            raise jobtap.Reject("not three")


async def ended(instance: Embedded, **shape: int) -> bool:
    async with instance.connect() as client:
        jobspec = Jobspec.from_command(["x"], duration=0.01, **shape)
        return (await (await client.submit(jobspec)).wait()).success


@ONE_HOST
def test_state_directory_keeps_the_edition_that_it_began_with(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_instance(
            statedir=tmp_path / "new", edition="current", simulate=True
        ) as instance:
            async with instance.connect() as client:
                assert (await client.call("broker.info"))["edition"] == "current"
            assert await ended(instance)
        with pytest.raises(InstanceFailed, match=r"of edition current, .*--edition current"):
            async with open_instance(statedir=tmp_path / "new"):
                pass
        async with open_instance(statedir=tmp_path / "new", edition="current"):
            pass
        async with open_instance(statedir=tmp_path / "old"):
            pass
        (tmp_path / "old" / "edition").unlink()  # as one that was made before there was the note
        with pytest.raises(InstanceFailed, match=r"of edition classic, .*--edition classic"):
            async with open_instance(statedir=tmp_path / "old", edition="current"):
                pass
        with pytest.raises(FormatError, match="edition: expected one of classic, current"):
            async with open_instance(edition="newest"):
                pass

    run(main)


def test_what_is_given_counts(run: Run) -> None:
    async def main() -> None:
        async with open_instance(
            nodes=5, cores=2, policy="easy", plugins=[Refusing], simulate=True
        ) as instance:
            assert await ended(instance, nnodes=5, ntasks=10)
            assert not await ended(instance, nnodes=6)
            with pytest.raises(FluxError, match="not three"):
                await ended(instance, nnodes=3)
            async with instance.connect() as client:
                config = (await client.call("config.get"))["config"]
            assert config["sched"]["policy"] == "easy"

    run(main)


def test_modules_crash_and_come_back(run: Run) -> None:
    async def main() -> None:
        async with open_instance(simulate=True) as instance:
            for module in ("sched", "job-manager"):
                await instance.crash(module)
                await instance.load(module)
            await instance.unload("job-exec")
            with pytest.raises(FluxError):
                await instance.reload("job-exec")
            await instance.load("job-exec")
            assert await ended(instance)

    run(main)


def test_state_lasts_where_a_directory_is_named(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_instance(statedir=tmp_path, simulate=True) as instance:
            assert await ended(instance)
            with pytest.raises(InstanceFailed, match="an instance runs there"):
                async with open_instance(statedir=tmp_path):
                    pass
        async with (
            open_instance(statedir=tmp_path, simulate=True) as instance,
            instance.connect() as client,
        ):
            assert len(await client.jobs(states=64)) == 1

    run(main)


def test_jobs_of_a_temporary_instance_end_with_it(run: Run, tmp_path: Path) -> None:
    mark = tmp_path / "ended"
    script = f"trap 'echo > {mark}; exit' TERM; echo ready; while :; do sleep 0.01; done"

    async def main() -> None:
        async with open_instance() as instance, instance.connect() as client:
            job = await client.submit(command_jobspec(["sh", "-c", script]))
            async with aclosing(job.output()) as pieces:
                await anext(pieces)  # it has begun
        assert mark.exists()

    run(main)


def test_errors_come_as_they_are(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with open_instance(simulate=True):
                _ = 1 / 0
        with pytest.raises(FormatError, match=r"policy: expected one of fifo, .* got .best"):
            async with open_instance(policy="best"):
                raise AssertionError
        with pytest.raises(FormatError, match=r"sched\.policy"):
            async with open_instance(config="[sched]\npolicy = 'best'"):
                pass
        missing = "[job-manager]\nplugins = [{load = '/nope.py'}]"
        with pytest.raises(InstanceFailed, match="there is no such file"):
            async with open_instance(config=missing):
                pass

    run(main)


def test_a_block_is_cancelled_when_the_instance_has_ended_by_itself(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(*_: object) -> None:
        raise RuntimeError("the disk is on fire")

    async def main() -> None:
        async with open_instance(simulate=True) as instance, instance.connect() as client:
            monkeypatch.setattr(SqliteStore, "commit", commit)
            await client.submit(Jobspec.from_command(["x"]))

    with pytest.raises(InstanceFailed, match="module kvs: RuntimeError: the disk is on fire"):
        run(main)


def test_a_block_that_fails_while_the_instance_ends_hears_why_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Trio run is over when the block is left, and its thread not before it is waited for."""
    trio_run, wait_for = trio.run, embedding.wait
    run_is_over, thread_is_waited_for = threading.Event(), threading.Event()

    def run_in_thread(main: Callable[[], Awaitable[None]]) -> None:
        try:
            trio_run(main)
        finally:
            run_is_over.set()
            thread_is_waited_for.wait(DEADLINE_S)

    def wait(futures: list[Future[Any]]) -> object:
        if not futures[0].done():
            thread_is_waited_for.set()
        return wait_for(futures)

    def commit(*_: object) -> None:
        raise RuntimeError("the disk is on fire")

    async def main() -> None:
        async with open_instance(simulate=True) as instance, instance.connect() as client:
            thread_is_waited_for.clear()  # its start was waited for
            monkeypatch.setattr(SqliteStore, "commit", commit)
            with suppress(FluxError, ClientError):
                await client.submit(Jobspec.from_command(["x"]))
            await anyio.to_thread.run_sync(run_is_over.wait, DEADLINE_S)
            raise LookupError("the block has failed")

    monkeypatch.setattr(trio, "run", run_in_thread)
    monkeypatch.setattr(embedding, "wait", wait)
    try:
        with pytest.raises(InstanceFailed, match="module kvs: RuntimeError: the disk is on fire"):
            anyio.run(main, backend="asyncio")
    finally:
        thread_is_waited_for.set()


def test_directory_is_taken_until_the_instance_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    "Also if asyncio does not wait for that: a task that is cancelled twice ends at once."
    run_instance = embedding.run_instance
    is_ending, may_end = threading.Event(), threading.Event()

    @asynccontextmanager
    async def slow_to_end(*given: Any) -> AsyncIterator[Instance]:
        async with run_instance(*given) as instance:
            yield instance
        is_ending.set()
        await trio.to_thread.run_sync(may_end.wait, DEADLINE_S)

    async def main() -> None:
        is_open = asyncio.Event()

        async def keep_open() -> None:
            async with open_instance(statedir=tmp_path, simulate=True):
                is_open.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(keep_open())
        await is_open.wait()
        task.cancel()
        await asyncio.to_thread(is_ending.wait, DEADLINE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(InstanceFailed, match="an instance runs there"):
            async with open_instance(statedir=tmp_path):
                pass

    monkeypatch.setattr(embedding, "run_instance", slow_to_end)
    try:
        asyncio.run(main())
    finally:
        may_end.set()
        for thread in threading.enumerate():
            if thread.name == "flux-trio instance":
                thread.join(DEADLINE_S)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("in_trio.py", "exit code 0\nexception exec: "),
        ("in_asyncio.py", "resource-offline\nsuccess True\n999\n"),
        ("in_cells.py", "exit code 0\n"),
    ],
)
def test_the_samples_do_what_they_say(name: str, said: str) -> None:
    command = [sys.executable, str(SAMPLES / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert done.stdout.startswith(said)


def test_the_sample_of_pytest_passes() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_in_pytest.py"]
    done = subprocess.run(
        command, cwd=SAMPLES, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("after", [0.0, 0.05, 0.3])
def test_a_cancel_while_an_instance_opens_is_a_cancel(after: float) -> None:
    async def main() -> bool:
        with trio.move_on_after(after) as scope:
            async with open_instance(simulate=True):
                await trio.sleep_forever()
        return scope.cancelled_caught

    assert trio.run(main)


def test_an_instance_is_started_and_stopped_without_async_code() -> None:
    with start_instance(nodes=2, simulate=True) as instance:
        with instance.connect() as client:
            job = client.submit(command_jobspec(["true"], duration=1000))
            instance.crash("sched")
            instance.load("sched")
            instance.take_down("0-1")
            assert not job.wait().success
        instance.stop()
        instance.stop()
    left = [thread.name for thread in threading.enumerate()]
    assert [name for name in left if name.startswith("flux-trio")] == []
    with pytest.raises(TypeError, match=r"nodes: expected a whole number, got 1\.5"):
        start_instance(nodes=1.5)


def broken() -> jobtap.Plugin:
    raise LookupError("no rules")


@ONE_HOST
def test_plugins_are_files_too(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from flux_trio.jobtap import Plugin\nclass Mine(Plugin):\n    pass\n")

    async def main() -> None:
        async with (
            open_instance(plugins=[str(file), Refusing], simulate=True) as instance,
            instance.connect() as client,
        ):
            listed = await client.call("job-manager.jobtap-list")
            assert {"mine", "refusing"} <= set(listed["plugins"])
            names = (await client.call("job-manager.jobtap", {"query_only": True}))["plugins"]
            assert {"mine", "refusing"} <= set(names)
            assert ".priority-default" in names
            status = await client.call("resource.status")
            assert (status["online"], status["drain"], status["torpid"]) == ("0", {}, "")

    run(main)


@ONE_HOST
@pytest.mark.parametrize(
    ("plugins", "error", "text"),
    [
        (["/nope/mine.py"], InstanceFailed, "^no plugin /nope/mine.py: there is no such file$"),
        (
            [broken],
            InstanceFailed,
            r"broken .*: LookupError: no rules \(.*test_embedding.py:\d+\)$",
        ),
        ([dict], InstanceFailed, "expected a plugin from <class 'dict'>, got {}"),
        ([Refusing, 3], TypeError, "^plugins: expected plugins, .* or paths of files, got 3$"),
        ("mine.py", TypeError, "^plugins: expected a list of plugins, .*, got 'mine.py'$"),
    ],
)
def test_plugins_that_are_none_are_told(
    run: Run, plugins: Any, error: type[Exception], text: str
) -> None:
    async def main() -> None:
        with pytest.raises(error, match=text):
            async with open_instance(plugins=plugins, simulate=True):
                pass

    run(main)


@ONE_HOST
def test_an_instance_without_nodes_or_cores_is_refused(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="nodes: expected at least 1, got 0"):
            async with open_instance(nodes=0):
                pass
        with pytest.raises(ValueError, match="cores: expected at least 1, got -2"):
            async with open_instance(cores=-2, simulate=True):
                pass

    run(main)
