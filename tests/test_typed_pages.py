"""The commands of pages, typed in order: each works, or prints what its page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.make_tutorial import DEADLINE_S, PAGE, ROOT, commands, filled, normal, typed

HOME = ROOT / "docs" / "index.md"

pytestmark = [pytest.mark.real, pytest.mark.gate]


def typed_inside(page: str, directory: Path) -> str:
    """What the commands of a page in docs/howto print in an instance; each has worked."""
    text = (ROOT / "docs" / "howto" / page).read_text()
    script = directory / "script"
    script.write_text("\n".join(["set -eu", *commands(text), "flux-trio cancel --all"]))
    environment = {key: value for key, value in os.environ.items() if "FLUX" not in key}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (directory / "state").mkdir()
    done = subprocess.run(
        ["flux-trio", "start", "--statedir", directory / "state", "bash", script],
        cwd=ROOT,
        env=environment,
        text=True,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_workflow(tmp_path: Path) -> None:
    """26.format.5, 26.schemes.5, 26.schemes.6, 26.schemes.7"""
    told = typed_inside("run-a-workflow.md", tmp_path)
    assert "can never be satisfied" in told
    assert re.search(r"^depends:after-success=ƒ\w+$", told, re.MULTILINE)


def test_eventlog(tmp_path: Path) -> None:
    told = typed_inside("read-an-eventlog.md", tmp_path)
    for text in ("finish status=768", "it never started", " 7 0.5", "exit code 3", "type=alloc"):
        assert text in told, text


def test_first_runs_of_the_home_page(tmp_path: Path) -> None:
    """As somebody types them who has the checkout beside."""
    for name in ("docs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    run, tested, simulated, judged = typed(commands(HOME.read_text()), tmp_path, tmp_path)
    assert len(run.splitlines()) == 4
    assert "passed" in tested
    assert "mean wait" in simulated
    assert judged in HOME.read_text()


def test_every_command_of_the_tutorial_prints_what_the_page_shows(tmp_path: Path) -> None:
    page = PAGE.read_text()
    for end in (" CD ", " F ", " CA ", " TO "):
        assert end in page, "a job that ended so"
    made = filled(page, typed(commands(page), tmp_path))
    assert normal(made) == normal(page), "run: python -m docs.make_tutorial"
