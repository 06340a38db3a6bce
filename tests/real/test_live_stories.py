"""Stories of a healthy flux-core of which false things were said: nobody is accused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.real_flux import NEEDS_FLUX, REAL, STORY_S_MAX

pytestmark = NEEDS_FLUX

STORIES = REAL.parent / "data" / "live-stories"


def played(script: str, cwd: Path, *options: str) -> str:
    """Play a script whose last command judges; return what it prints."""
    commands = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["flux", "start", "-s", "4", *options, "sh", str(STORIES / script)],
        cwd=cwd,
        env={**os.environ, "PATH": f"{os.environ['PATH']}:{commands}"},
        capture_output=True,
        timeout=STORY_S_MAX,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("script", "clause"),
    [("memo.sh", "27.success.7"), ("queue-stop-with-infeasible.sh", "27.cancel.8")],
)
def test_nobody_is_accused(script: str, clause: str, tmp_path: Path) -> None:
    said = played(script, tmp_path)
    assert f"{clause} broken" not in said
    assert "all        kept" in said


def test_a_list_is_a_stream_for_the_monitor_of_a_scheduler_that_is_replaced(tmp_path: Path) -> None:
    """6.request.1"""
    assert "monitor: 0\n" in played("sched-replaced.sh", tmp_path)


def test_all_queues_are_started(tmp_path: Path) -> None:
    """33.admin.7: also while their names are unknown."""
    config = f"--config-path={STORIES / 'two-queues.toml'}"
    assert "33.admin.7" not in played("start-all.sh", tmp_path, config)
