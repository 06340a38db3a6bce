"""`flux-trio shell`: a shell inside an instance that Flux's own programs know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from flux_trio.cli.instance.enclosing import environment_inside

ASK = """
import os, socket
client = socket.socket(socket.AF_UNIX)
client.connect(os.environ["FLUX_URI"].removeprefix("local://"))
assert client.recv(1) == b"\\0"
print("let in")
"""


def test_inside_the_native_door_is_open_and_the_exit_code_is_the_shells(tmp_path: Path) -> None:
    script = tmp_path / "shell"
    script.write_text(f"#!/bin/sh\n{sys.executable} -c '{ASK}' && exit 3\n")
    script.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-m", "flux_trio", "shell", "-s", "2"],
        env={**os.environ, "SHELL": str(script)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (3, "let in\n"), done.stderr


def test_what_runs_inside_finds_the_native_door_if_there_is_one() -> None:
    inside = environment_inside({"FLUX_URI": "local:///outer"}, "/s", None, "local:///s/local-0")
    assert inside["FLUX_URI"] == "local:///s/local-0"
    assert environment_inside({"FLUX_URI": "local:///outer"}, "/s", None)["FLUX_URI"] == (
        "local:///outer"
    )
