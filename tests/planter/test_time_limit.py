"""A test that hangs is ended and named, and the tests after it run (`make test`)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

MAKEFILE: Final = (Path(__file__).parents[2] / "Makefile").read_text()
HANGING: Final = """
import threading

def test_that_hangs():
    threading.Event().wait()

def test_after_it():
    pass
"""


def test_every_target_runs_pytest_with_a_time_limit() -> None:
    lines = [line for line in MAKEFILE.splitlines() if "-m pytest" in line]
    assert len(lines) == 1
    assert lines[0].startswith("PYTEST := ")
    assert re.search(r"--timeout=\d+ --timeout-method=thread$", lines[0])


def test_test_that_hangs_is_named_and_the_next_one_runs(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    command = [sys.executable, "-m", "pytest", "-q", "-n1", "-p", "no:cacheprovider"]
    limit = ["--timeout=2", "--timeout-method=thread"]
    done = subprocess.run(
        [*command, *limit, "-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert re.search(r"FAILED .*test_hanging\.py::test_that_hangs", done.stdout)
