"""Asks a program in a process of its own, in JSON; its answer is the last line that it prints."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.planter.findings import ROOT


def ask(program: str, question: object) -> object:
    """Run `python -m program` once, in the root of the project, and return what it answers.

    Raises RuntimeError with the end of its standard error if it fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", program],
        cwd=ROOT,
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
