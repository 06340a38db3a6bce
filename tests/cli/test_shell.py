"""`flux-trio shell`: a shell inside an instance that Flux's own programs know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from flux_trio.cli.instance.enclosing import environment_inside
from tests.support.instance import DEADLINE_S

ASK = """
import os, socket
client = socket.socket(socket.AF_UNIX)
client.connect(os.environ["FLUX_URI"].removeprefix("local://"))
assert client.recv(1) == b"\\0"
print("let in")
"""


def shell(tmp_path: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A `flux-trio shell` whose shell is a script."""
    file = tmp_path / "shell"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o700)
    return subprocess.run(
        [sys.executable, "-m", "flux_trio", "shell", *options],
        env={**os.environ, "SHELL": str(file)},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )


def test_inside_the_native_door_is_open_and_the_exit_code_is_the_shells(tmp_path: Path) -> None:
    done = shell(tmp_path, f"{sys.executable} -c '{ASK}' && exit 3", "-s", "2")
    assert (done.returncode, done.stdout) == (3, "let in\n"), done.stderr


def test_a_named_directory_keeps_the_jobs_for_the_next_shell(tmp_path: Path) -> None:
    kept = ("--statedir", str(tmp_path / "state"))
    flux_trio = f"{sys.executable} -m flux_trio"
    first = shell(tmp_path, f"{flux_trio} submit --urgency=hold true", *kept)
    assert first.returncode == 0, first.stderr
    jobid = first.stdout.strip()
    ends = f"{flux_trio} jobs -no '{{state}}' {jobid} && {flux_trio} cancel {jobid}"
    done = shell(tmp_path, ends, *kept)
    assert (done.returncode, done.stdout) == (0, "SCHED\n"), done.stderr


def test_what_runs_inside_finds_the_native_door_if_there_is_one() -> None:
    inside = environment_inside({"FLUX_URI": "local:///outer"}, "/s", None, "local:///s/local-0")
    assert inside["FLUX_URI"] == "local:///s/local-0"
    assert environment_inside({"FLUX_URI": "local:///outer"}, "/s", None)["FLUX_URI"] == (
        "local:///outer"
    )
