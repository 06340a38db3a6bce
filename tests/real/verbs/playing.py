"""Plays the story of Flux's own programs in an instance, and prints what each has said as JSON.

It runs inside an instance of flux-core (`flux start`) or of flux-trio, with FLUX_URI in its
environment; the same words go to both, so that what they answer can be compared.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

COMMAND_S_MAX = 120  # a busy machine starts an instance in a job slowly
STORY = Path(__file__).with_name("story.txt")
F58 = re.compile(r"ƒ[1-9A-HJ-NP-Za-km-z]+")


def play(line: str, jobid: str) -> dict[str, object]:
    """Run a command; return its exit code and what it printed."""
    words = [jobid if word == "JOB" else word for word in shlex.split(line)]
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            timeout=COMMAND_S_MAX,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return {"line": line, "rc": "no end", "out": "", "err": ""}
    return {"line": line, "rc": done.returncode, "out": done.stdout, "err": done.stderr}


def main() -> None:
    jobid = "no-job"
    for line in STORY.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        told = play(line, jobid)
        if line.startswith(("flux submit", "flux bulksubmit")) and told["rc"] == 0:
            ids = F58.findall(str(told["out"]))
            jobid = ids[-1] if ids else jobid
        json.dump(told, sys.stdout)
        print(flush=True)


if __name__ == "__main__":
    main()
