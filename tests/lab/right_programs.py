"""Exercise right programs again and again, as processes: none may ever be accused.

`python -m tests.lab.right_programs [--times N] [--at-once N] [--loops N] [--seconds S] [NAME...]`
prints each run that did not end with 0, and a line for each program. `--loops` are busy loops that
run beside them; they are ended at the end, or after `--seconds`, when no further run is begun.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from flux_trio.client import STATEDIR_VARIABLE
from flux_trio.config import Config
from flux_trio.services.module_process import CONFIG_VARIABLE

PAGES: Final = Path(__file__).parents[2] / "docs" / "howto" / "any-language"
NEITHER: Final = ("--without", "constraints,gpus")
FIFO: Final = ("--order", "fifo")
EDITIONS: Final = ("classic", "current")
PYTHON: Final = sys.executable


def _programs() -> dict[str, list[str]]:
    """The words of `flux-trio exercise` for each program, by name."""
    found = {}
    for edition in EDITIONS:
        page = PAGES / edition if edition == "current" else PAGES
        js, fifo = page / "fifo.js", page / "fifo.py"
        speaks = ("--edition", edition)
        module = ("--", PYTHON, "-m", "flux_trio.services.module_process")
        limited = ("--limited", f"node {js} 2")
        found |= {
            f"fifo.js {edition}": ["sched", *speaks, *NEITHER, *limited, "--", "node", str(js)],
            f"fifo.py {edition}": ["sched", *speaks, *NEITHER, *FIFO, "--", PYTHON, str(fifo)],
            f"exec.py {edition}": ["exec", *speaks, "--", PYTHON, str(page / "exec.py")],
            f"manager.py {edition}": ["manager", *speaks, "--", PYTHON, str(page / "manager.py")],
            f"our sched {edition}": ["sched", *speaks, *FIFO, *module, "sched"],
            f"our job-exec {edition}": ["exec", *speaks, *module, "job-exec"],
        }
    return found


PROGRAMS: Final = _programs()


def exercised(name: str) -> tuple[int, str]:
    """Exercise a program; return the exit code, and what was said if it is not 0."""
    config = Config(edition=name.rpartition(" ")[2])
    with tempfile.TemporaryDirectory(prefix="right-") as directory:
        environ: Mapping[str, str] = os.environ | {
            CONFIG_VARIABLE: msgspec.json.encode(config).decode(),
            STATEDIR_VARIABLE: directory,
        }
        words = [PYTHON, "-m", "flux_trio", "exercise", *PROGRAMS[name]]
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    return done.returncode, _wrong(done.stdout) + done.stderr[-2000:] if done.returncode else ""


def _wrong(text: str) -> str:
    """What is said after the counts, and the acts that did not come to their end."""
    acts = [line for line in text.splitlines() if line.startswith(("  broken", "  stuck"))]
    return "\n".join([*acts, text.rpartition(" kept")[2]]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.right_programs")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--loops", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    chosen = [each for each in PROGRAMS if not given.names or any(n in each for n in given.names)]
    end = time.monotonic() + given.seconds
    loops = [subprocess.Popen([PYTHON, "-c", "while True: pass"]) for _ in range(given.loops)]
    right: Counter[str] = Counter()
    runs: Counter[str] = Counter()

    def run(name: str) -> None:
        if time.monotonic() > end:
            return
        code, text = exercised(name)
        runs[name] += 1
        right[name] += not code
        if code:
            print(f"{name}: {code}\n{text}", flush=True)

    try:
        with ThreadPoolExecutor(given.at_once) as pool:
            list(pool.map(run, chosen * given.times))
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    for name in chosen:
        print(f"{name}: {right[name]} of {runs[name]}")
    return right != runs


if __name__ == "__main__":
    sys.exit(main())
