"""The commands of docs/howto/read-an-eventlog.md, typed in order inside an instance: each works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.instance import DEADLINE_S, ROOT, environment

PAGE = ROOT / "docs" / "howto" / "read-an-eventlog.md"


@pytest.mark.real
@pytest.mark.gate
def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    typed = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    program = tmp_path / "flux-trio"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m flux_trio "$@"\n')
    program.chmod(0o755)
    script = tmp_path / "script"
    script.write_text("\n".join(["set -eu", *typed, "flux-trio cancel --all", "echo done"]))
    statedir = tmp_path / "state"
    statedir.mkdir()
    env = environment(PATH=f"{tmp_path}:{os.environ['PATH']}")
    done = subprocess.run(
        [program, "start", "--statedir", statedir, "bash", script],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE_S,  # twenty commands, one after the other
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "done"), done.stderr
    for told in ("finish status=768", "it never started", " 7 0.5", "exit code 3", "type=alloc"):
        assert told in done.stdout, told
