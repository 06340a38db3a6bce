"""A job's own directory: its files are there before the first task, and nothing is left of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flux_trio.shell.protocol import TMP_NAME, TravelingFile
from flux_trio.shell.tmpdirs import JobDirectories
from tests.support.shell import Shell

SCRIPT = TravelingFile("script", b"#!/bin/sh\necho from $0\n", 0o100700)
DATA = TravelingFile("deep/er/data", b"\x00\xff", 0o100400)


@pytest.mark.real
async def test_a_job_runs_a_script_that_it_has_brought_along(directory: Path, shell: Shell) -> None:
    path = directory / TMP_NAME / "1"
    done = await shell.run(1, str(path / "script"), tmpdir=True, files=[SCRIPT])
    assert done.status == 0
    assert shell.output(1, 0) == f"from {path / 'script'}\n"
    assert not path.exists()
    shell.forget(1)


@pytest.mark.real
async def test_what_a_job_leaves_in_its_directory_is_removed(directory: Path, shell: Shell) -> None:
    path = directory / TMP_NAME / "1"
    line = f"mkdir -p {path}/a/b; echo x > {path}/a/b/c"
    assert (await shell.run(1, "sh", "-c", line, tmpdir=True, ntasks=2)).status == 0
    assert not path.exists()
    shell.forget(1)


def test_files_have_their_modes_and_directories(tmp_path: Path) -> None:
    directories = JobDirectories(tmp_path)
    for _ in range(2):  # a second attempt finds the first one's
        directories.make(7, [SCRIPT])
    directories.make(8, [DATA])
    assert (directories.of(7) / "script").stat().st_mode & 0o777 == 0o700
    assert (directories.of(8) / "deep/er/data").read_bytes() == DATA.data
    assert directories.of(8).stat().st_mode & 0o777 == 0o700
    assert directories.has_more(8)
    directories.remove_others([7])
    assert not directories.has_more(8)
    assert directories.has_more(7)
