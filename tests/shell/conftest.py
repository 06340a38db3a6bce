from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from flux_trio.process.console import own_command
from flux_trio.shell.protocol import List, Listing, Shutdown, frame
from flux_trio.shell.stream import socket_address
from tests.support.cgroups import limited_to, why_none
from tests.support.shell import Shell, hosts, no_process_left, open_shell


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """The directory of a shell host."""
    path = tmp_path / "shell"
    with no_process_left(path):
        yield path


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a host that serves all tests of a file, as long as none of them kills it."""
    directory = tmp_path_factory.mktemp("common") / "shell"
    subprocess.run(own_command("flux_trio.shell", str(directory)), check=True)
    with no_process_left(directory), socket.socket(socket.AF_UNIX) as silent:
        with socket_address(directory) as address:
            silent.connect(address)  # so that the host does not end with the first test
        yield directory
        with suppress(OSError):  # the host has gone
            while hosts(directory):  # it may not have noticed yet that the last client is gone
                silent.sendall(frame(Shutdown()))
                time.sleep(0.01)


@pytest.fixture
async def common_shell(common: Path) -> AsyncIterator[Shell]:
    """A client of the common host, which has forgotten the jobs of other tests."""
    async with open_shell(common) as shell:
        yield shell
        shell.send(List())
        shell.forget(*(await shell.hear(Listing)).ended)


@pytest.fixture
async def shell(directory: Path) -> AsyncIterator[Shell]:
    """A client of a shell host of its own."""
    async with open_shell(directory) as shell:
        yield shell


@pytest.fixture
def without_cgroups() -> Iterator[None]:
    """As on a machine where none can be had."""
    with nullcontext() if why_none() else limited_to(0):
        yield


@pytest.fixture(params=["with cgroups", "without"])
def either_way(request: pytest.FixtureRequest) -> None:
    if request.param == "without":
        request.getfixturevalue("without_cgroups")
    elif reason := why_none():
        pytest.skip(reason)
