"""The file of a trace: it has one writer, and what a refused one does leaves it as it is."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click.testing
import pytest

from flux_trio.cli import main
from flux_trio.cli.judge.traces import written_trace
from flux_trio.cli.terminal.errors import CommandError
from flux_trio.trace import Record
from tests.support.instance import DEADLINE_S, FLUX_TRIO, environment
from tests.support.replayed import assert_replayed

SECOND = """
import sys
from pathlib import Path
from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.judge.traces import written_trace
try:
    with written_trace(Path(sys.argv[1])):
        print("written")
except CommandError as error:
    print(error.message)
"""


def second(path: Path) -> str:
    """What another process says that writes its trace there."""
    command = [sys.executable, "-c", SECOND, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_trace_of_another_process_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("of an earlier run\n")
    with written_trace(path):
        assert path.read_text() == ""
        path.write_text("of this run\n")
        assert second(path) == f"{path}: another process writes its trace to this file"
        with pytest.raises(CommandError, match="another process"), written_trace(path):
            pass
        assert path.read_text() == "of this run\n"
    assert second(path) == "written"


def test_trace_may_go_to_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with written_trace(path) as sinks:
        assert len(sinks) == 1
    assert os.read(reader, 1) == b""
    os.close(reader)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_its_user_can_read_a_trace(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        (tmp_path / "old").touch()
        for name in ("new", "old"):
            with written_trace(tmp_path / name):
                assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user")
def test_file_of_another_user_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("of another user\n")
    os.chown(path, 65534, 65534)
    with pytest.raises(CommandError, match="belongs to another user"), written_trace(path):
        pass
    assert path.read_text() == "of another user\n"


def check(path: Path) -> str:
    """What `flux-trio check` says on standard error."""
    result = click.testing.CliRunner().invoke(main, ["check", str(path)])
    assert result.exit_code == 0
    return result.stderr


def test_trace_that_was_not_written_whole_is_told_then_and_by_check(tmp_path: Path) -> None:
    """The disk is full, here at a limit of the file's size, between two lines or in one."""
    said: list[str] = []
    records = [Record(n, 1.0, "turn" if n == 2 else "state", "kvs", data={}) for n in range(1, 9)]
    path = tmp_path / "whole"
    with written_trace(path, said.append) as (write,):
        for record in records:
            write(record)
    assert (said, check(path)) == ([], "")
    whole = path.read_bytes()
    for size in (len(whole) - whole[:-1].rindex(b"\n") - 1, 10):
        path = tmp_path / str(size)
        with limited(len(whole) - size), written_trace(path, said.append) as (write,):
            for record in records:
                write(record)
        assert said.pop() == f"{path}: the trace is incomplete: File too large"
        assert path.read_bytes() == whole[:-size]
        what = "line 9 is cut off" if size == 10 else "it has no end"
        assert f"{path}: the trace is not whole: {what}; more may have happened" in check(path)


@contextmanager
def limited(size: int) -> Iterator[None]:
    """No file of this process becomes larger than `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.real
@pytest.mark.parametrize("asked", [False, True])
def test_environments_of_jobs_are_in_a_trace_only_if_asked_for(tmp_path: Path, asked: bool) -> None:
    """Either can be replayed, also in ASCII, by which cores go."""
    path = tmp_path / "trace.jsonl"
    run = "flux-trio run --env=SECRET=hunter2 --env=FLUX_F58_FORCE_ASCII=1 sh -c 'echo ${#SECRET}'"
    words = ["--trace", str(path), *(["--trace-environments"] if asked else [])]
    script = f"{run}; flux-trio job info $(flux-trio job last) jobspec >{tmp_path}/jobspec"
    done = subprocess.run(
        [*FLUX_TRIO, "start", *words, "sh", "-c", with_command(tmp_path, script)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("7\n", "")
    assert "hunter2" in (tmp_path / "jobspec").read_text()
    assert ("hunter2" in path.read_text()) == asked
    assert_replayed(path)


def with_command(directory: Path, script: str) -> str:
    """Return a script in which `flux-trio` is this version's."""
    bin_ = directory / "bin"
    bin_.mkdir()
    (bin_ / "flux-trio").write_text(f'#!/bin/sh\nexec {" ".join(FLUX_TRIO)} "$@"\n')
    (bin_ / "flux-trio").chmod(0o755)
    return f"PATH={bin_}:$PATH; {script}"
