"""What a plugin changes in the process of its instance is put back, or refused."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import trio.testing

from flux_trio import jobtap
from flux_trio.jobtap.watchdog import ProcessSettings
from tests.support.instance import TWO_NODES, running_instance, until
from tests.support.plugin_host import PRIORITY, handling, rig

LIMIT = 900


@pytest.fixture
def limit() -> Iterator[int]:
    """The recursion limit of a process whose plugins change it."""
    before = sys.getrecursionlimit()
    yield before
    sys.setrecursionlimit(before)


def lower(_job: Any) -> int:
    sys.setrecursionlimit(LIMIT)
    return 5


async def lower_later(job: Any) -> int:
    return lower(job)


@pytest.mark.parametrize("handler", [lower, lower_later])
async def test_recursion_limit_is_put_back_and_the_plugin_is_named(
    limit: int, handler: Any
) -> None:
    async with rig(handling(PRIORITY, handler)) as r:
        r.ask()
        await trio.testing.wait_all_tasks_blocked()
        assert sys.getrecursionlimit() == limit
        text = f"changed the recursion limit, which is {limit} again"
        assert r.logged == [f"plugin a failed in {PRIORITY} for job ƒ8: {text}"]


async def test_recursion_limit_is_put_back_after_a_task_and_a_removal(limit: int) -> None:
    class Lowers(jobtap.Plugin):
        name = "a"

        def removed(self) -> None:
            lower(None)

    plugin = Lowers()
    async with rig(plugin) as r:
        plugin.start_soon(lower_later, None)
        await trio.testing.wait_all_tasks_blocked()
        assert sys.getrecursionlimit() == limit
        await r.host.remove("a")
        assert sys.getrecursionlimit() == limit
        assert len(r.logged) == 2


def test_handlers_and_the_limit_of_files_are_put_back() -> None:
    handler, files = signal.getsignal(signal.SIGTERM), resource.getrlimit(resource.RLIMIT_NOFILE)
    settings = ProcessSettings()
    try:
        assert not settings.are_changed
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files[0] - 1, files[1]))
        assert settings.are_changed
        assert settings.put_back() == ["the handler of SIGTERM", "the limit of open files"]
        assert not settings.are_changed
        assert signal.getsignal(signal.SIGTERM) == handler
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == files
    finally:
        settings.stop()
        signal.signal(signal.SIGTERM, handler)


async def test_descriptors_of_the_instance_stay_open_and_others_can_be_closed(
    tmp_path: Path,
) -> None:
    held = os.open(tmp_path, os.O_RDONLY)
    closed: list[str] = []

    def close(_job: Any) -> None:
        own = os.open(tmp_path, os.O_RDONLY)
        os.close(own)
        for fd in (1, held, connection.fileno()):
            try:
                os.close(fd)
            except PermissionError:
                continue
            closed.append(f"{fd}")
        if (child := os.fork()) == 0:
            os.closerange(3, 1 << 12)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        os.closerange(3, 1 << 12)

    settings = ProcessSettings()
    connection = socket.socket()  # of a later time
    try:
        async with rig(handling(PRIORITY, close)) as r:
            said = r.answer().error
            assert said is not None
            assert (
                "PermissionError: [Errno 1] descriptors 3 to 4095: some are the instance's" in said
            )
        assert closed == []
        os.close(held)  # by the instance itself
    finally:
        settings.stop()
        connection.close()


# --- in an instance

WAYS = """
    import os, resource, signal, sys, threading
    from flux_trio import jobtap

    def name_of(job):
        return job.raw_jobspec["attributes"]["system"].get("job", {}).get("name", "")

    @jobtap.on("job.validate")
    def validate(job):
        WAYS.get(name_of(job), lambda: None)()

    @jobtap.on("job.state.depend")
    async def depend(job):
        name = name_of(job)
        if name.startswith("async-"):
            WAYS[name.removeprefix("async-")]()

    def interrupt(): raise KeyboardInterrupt
    def leave(): sys.exit(3)
    def limit(): sys.setrecursionlimit(len_of_stack() + 8)
    def close(): os.closerange(3, 1 << 12)
    def streams():
        for fd in (0, 1, 2): os.close(fd)
    def ignore(): signal.signal(signal.SIGTERM, signal.SIG_IGN)
    def files(): resource.setrlimit(
        resource.RLIMIT_NOFILE, (8, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    def len_of_stack():
        frame, n = sys._getframe(), 0
        while frame is not None:
            frame, n = frame.f_back, n + 1
        return n

    WAYS = {each.__name__: each for each in
            (interrupt, leave, limit, close, streams, ignore, files)}
    """


@pytest.mark.real
def test_instance_goes_on_with_all_that_it_has_acknowledged(tmp_path: Path) -> None:
    said = {
        "interrupt": "KeyboardInterrupt",
        "leave": "SystemExit: 3",
        "limit": "changed the recursion limit",
        "close": "descriptors 3 to 4095: some are the instance's",
        "streams": "descriptor 0 is the instance's",
        "ignore": "a plugin has changed the handler of SIGTERM: put back",
        "files": "a plugin has changed the limit of open files: put back",
    }
    plugin, errors = tmp_path / "changes.py", tmp_path / "errors"
    plugin.write_text(dedent(WAYS))
    with (
        errors.open("w") as stderr,
        running_instance(tmp_path / "state", TWO_NODES, stderr) as instance,
    ):
        instance.ok("jobtap", "load", plugin)
        before = instance.ok("submit", "true").strip()
        for way, text in said.items():
            instance.invoke("submit", "--job-name", way, "true")
            instance.invoke("submit", "--job-name", f"async-{way}", "true")
            until(lambda text=text: text in errors.read_text())  # type: ignore[misc]
        instance.ok("jobtap", "remove", "changes")
        after = instance.ok("submit", "true").strip()
        for jobid in (before, after):
            instance.ok("job", "wait-event", "-q", jobid, "clean")
