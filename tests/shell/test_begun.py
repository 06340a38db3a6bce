"""A shell host that is begun early: it imports, and then waits until it is told to go on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from flux_trio.process.console import own_command
from flux_trio.shell.begun import BegunHost, begun_host
from tests.support.instance import environment
from tests.support.shell import hosts, no_process_left, open_shell

pytestmark = pytest.mark.real


@pytest.fixture
def begun(directory: Path) -> Iterator[BegunHost]:
    host = BegunHost(directory)
    token = begun_host.set(host)
    yield host
    begun_host.reset(token)
    host.drop()


async def test_client_uses_the_host_that_was_begun(begun: BegunHost, directory: Path) -> None:
    async with open_shell(directory) as shell:
        done = await shell.run(1, "sh", "-c", "exit 3")
        assert done.status == 3 << 8
        assert begun.take() is None


async def test_host_that_runs_is_used_and_the_other_one_ends(directory: Path) -> None:
    await trio.run_process(own_command("flux_trio.shell", str(directory)))
    begun = BegunHost(directory)
    token = begun_host.set(begun)
    async with open_shell(directory):
        assert begun.take() is None  # it was dropped
        assert len(hosts(directory)) == 1
    begun_host.reset(token)


async def test_host_that_was_killed_meanwhile_is_started_anew(
    begun: BegunHost, directory: Path
) -> None:
    process = begun.take()
    assert process is not None
    process.kill()
    process.wait()
    begun._process = process
    async with open_shell(directory) as shell:
        assert (await shell.run(1, "true")).status == 0


def test_host_that_nobody_tells_ends_with_its_input_and_has_opened_nothing(directory: Path) -> None:
    process = BegunHost(directory).take()
    assert process is not None
    _, errors = process.communicate()
    assert (process.returncode, errors) == (0, b"")
    assert not directory.exists()


def test_start_that_is_refused_leaves_no_process(tmp_path: Path) -> None:
    config = tmp_path / "site.toml"
    config.write_text("[nosuch]\n")
    with no_process_left(tmp_path / "state" / "shell"):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "flux_trio",
                "start",
                "-c",
                config,
                "--statedir",
                tmp_path / "state",
                "true",
            ],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "nosuch" in done.stderr
    assert not (tmp_path / "state" / "shell").exists()
