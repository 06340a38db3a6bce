"""The tutorial's commands, typed in order into one shell: each must do what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
DEADLINE_S = 600  # only a command that hangs takes so long, however busy the machine is


def console_blocks(text: str) -> list[list[str]]:
    """The lines of each `console` block."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return [block.splitlines() for block in blocks]


def script() -> str:
    """A shell script of every command; one that fails ends it."""
    lines = ["set -eum"]  # -m: job control, so that %1 is the instance
    for block in console_blocks(PAGE.read_text()):
        for line in block:
            if line.startswith("$ ") and "activate" not in line:
                command = line.removeprefix("$ ")
                lines.append(f"echo {'+' * 3} {len(lines)}")
                lines.append(command.replace("exit 3'; test", "exit 3' || test"))
    return "\n".join(lines)


@pytest.mark.real
def test_every_command_of_the_tutorial_works(tmp_path: Path) -> None:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run(
        ["bash", "-c", script()],
        cwd=ROOT,
        env=environment,
        text=True,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in ("free      4     32", "task 7 of 8", "still here", "node[0-3]"):
        assert expected in done.stdout
    for end in (" CD ", " F ", " CA ", " TO "):
        assert end in done.stdout
