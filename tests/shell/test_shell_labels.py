"""Labeled output in files: each line says which task wrote it, also across a host's end."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from flux_trio.process.private import private_directory
from flux_trio.shell.labels import COPY_BYTES_MAX, LabeledOutput
from flux_trio.shell.protocol import JOBS_NAME, Done, Started, lines_name
from flux_trio.shell.records import LabeledFile
from tests.support.shell import Shell

BOTH = ["stdout", "stderr"]


@pytest.mark.real
async def test_each_line_of_a_shared_file_says_its_task(tmp_path: Path, shell: Shell) -> None:
    path = tmp_path / "out"
    path.write_text("of an earlier job\n")
    line = "echo a$FLUX_TASK_RANK; printf 'no end' >&2"
    files = dict.fromkeys(BOTH, "out")
    done = await shell.run(
        1, "sh", "-c", line, ntasks=2, cwd=str(tmp_path), of_tasks=files, labeled=BOTH
    )
    assert (done.status, done.sizes, done.damage) == (0, [], [])
    assert sorted(path.read_text().splitlines()) == ["0: a0", "0: no end", "1: a1", "1: no end"]
    shell.forget(1)


@pytest.mark.real
async def test_lines_come_while_the_job_runs_and_after_the_host_was_killed(
    directory: Path, tmp_path: Path, shell: Shell
) -> None:
    path, go = tmp_path / "out", tmp_path / "go"
    line = f"echo one; while ! test -e {go}; do sleep 0.01; done; echo two"
    shell.start(1, "sh", "-c", line, of_tasks={"stdout": str(path)}, labeled=["stdout"])
    await shell.hear(Started, 1)
    place = directory / JOBS_NAME / "1.labeled"
    while not place.exists() or not place.stat().st_size:  # noqa: ASYNC110 - written by the host
        await trio.sleep(0.01)
    assert path.read_text() == "0: one\n"
    await shell.kill_host()
    go.touch()
    shell.start(1, "sh", "-c", line, of_tasks={"stdout": str(path)}, labeled=["stdout"])
    await shell.hear(Done, 1)
    assert path.read_text() == "0: one\n0: two\n"
    shell.forget(1)
    while list((directory / JOBS_NAME).iterdir()):  # noqa: ASYNC110 - the host has no answer
        await trio.sleep(0.01)


@pytest.mark.real
async def test_a_file_that_takes_no_lines_is_named_when_the_job_has_ended(shell: Shell) -> None:
    done = await shell.run(1, "echo", "x", of_tasks={"stdout": "/dev/full"}, labeled=["stdout"])
    assert done.damage == ["/dev/full: lines of task 0 are missing: No space left on device"]
    shell.forget(1)


@pytest.mark.real
async def test_why_a_task_does_not_start_stands_in_the_file_of_its_errors(
    tmp_path: Path, shell: Shell
) -> None:
    path = tmp_path / "err"
    shell.start(1, "/no/such", of_tasks={"stderr": str(path)})
    assert (await shell.hear(Done, 1)).status == 127 << 8
    assert path.read_text() == "task 0: start failed: /no/such: No such file or directory\n"
    shell.forget(1)


def test_a_line_longer_than_one_read_is_labeled_anew_in_each(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with private_directory(tmp_path) as files:
        file = LabeledFile(7, "stdout", str(path))
        spool = tmp_path / lines_name(1, 7, "stdout")
        spool.write_bytes(b"a" * COPY_BYTES_MAX + b"b")
        assert LabeledOutput(files, 1, [file]).copy(is_last=False) == []
        assert path.read_bytes() == b"7: " + b"a" * COPY_BYTES_MAX + b"\n"
        spool.write_bytes(b"a" * COPY_BYTES_MAX + b"bc\nd")
        later = LabeledOutput(files, 1, [file])  # goes on where the first one was
        assert later.copy(is_last=False) == []
        assert path.read_bytes().endswith(b"a\n7: bc\n")
        assert later.copy(is_last=True) == []
        assert path.read_bytes().endswith(b"7: bc\n7: d\n")
        later.remove()
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
