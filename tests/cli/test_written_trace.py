"""The file of a trace: it has one writer, and what a refused one does leaves it as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flux_trio.cli.errors import CommandError
from flux_trio.cli.traces import written_trace

SECOND = """
import sys
from pathlib import Path
from flux_trio.cli.errors import CommandError
from flux_trio.cli.traces import written_trace
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
