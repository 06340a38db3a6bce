"""The commands of docs/howto/run-a-workflow.md, typed in order inside an instance: each works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.make_tutorial import DEADLINE_S, ROOT, commands

PAGE = ROOT / "docs" / "howto" / "run-a-workflow.md"


@pytest.mark.real
@pytest.mark.gate
def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    """26.format.5, 26.schemes.5, 26.schemes.6, 26.schemes.7"""
    script = tmp_path / "script"
    script.write_text(
        "\n".join(["set -eu", *commands(PAGE.read_text()), "flux-trio cancel --all", "echo done"])
    )
    environment = {key: value for key, value in os.environ.items() if "FLUX" not in key}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    statedir = tmp_path / "state"
    statedir.mkdir()
    started = ["flux-trio", "start", "--statedir", str(statedir), "bash", str(script)]
    done = subprocess.run(
        started,
        cwd=ROOT,
        env=environment,
        text=True,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("done\n")
    assert "can never be satisfied" in done.stdout
    assert re.search(r"^depends:after-success=ƒ\w+$", done.stdout, re.MULTILINE)
