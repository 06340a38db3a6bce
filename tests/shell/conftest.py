from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.cgroups import limited_to, why_none
from tests.support.shell import Shell, no_process_left, open_shell


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """The directory of a shell host."""
    path = tmp_path / "shell"
    with no_process_left(path):
        yield path


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
