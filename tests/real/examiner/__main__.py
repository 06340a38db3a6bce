"""Examines flux-trio with flux-core's own tests: `python -m tests.real.examiner [FILE...]`.

`FLUX_SOURCE` names a tree of flux-core's source, built, in which `make check TESTS=` was run;
`flux` is on PATH. Exits 1 if a case that passed before fails. `--write` writes `results.toml` and
the page, which names the scripts that were not played.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, get_args

import tomli_w

from tests.real.examiner.comparing import (
    Results,
    better,
    counts,
    judged,
    judged_again,
    share,
    worse,
)
from tests.real.examiner.page import PAGE, page
from tests.real.examiner.playing import HERE, Setting, play

RESULTS: Final = HERE / "results.toml"
HEAD: Final = (
    "# The outcome of each case of flux-core's own tests; `make real-tests` writes it.\n\n"
)


def table(name: str) -> dict[str, dict[str, Any]]:
    """Return one of the tables of this directory, by file and case."""
    path = HERE / f"{name}.toml"
    return tomllib.loads(path.read_text()) if path.exists() else {}


def files() -> list[str]:
    return (HERE / "files.txt").read_text().split()


def examine(
    names: list[str], source: Path, where: Path, jobs: int, recorded: Results | None
) -> Results:
    """Play each file in the three settings; return the result of each case.

    With the results that are `recorded` it is played with us alone: they say which cases count.
    """
    exempt = table("exempt")

    def one(file: str) -> Results:
        settings: tuple[Setting, ...] = get_args(Setting) if recorded is None else ("ours",)
        told = {setting: play(file, setting, source, where / setting) for setting in settings}
        if recorded is None:
            found = judged(told["core"], told["none"], told["ours"], exempt.get(file, {}))
        else:
            found = judged_again(recorded[file], told["ours"])
        print(file, dict(counts(found)), flush=True)
        return {file: found}

    with ThreadPoolExecutor(jobs) as pool:
        return {file: cases for each in pool.map(one, names) for file, cases in each.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.real.examiner")
    parser.add_argument("files", nargs="*", help="scripts of t/ (all of files.txt)")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="scripts at once (2)")
    parser.add_argument("--write", action="store_true", help="write results.toml and the page")
    parser.add_argument(
        "--ours", action="store_true", help="play with us alone: what counts is as recorded"
    )
    parser.add_argument("--where", type=Path, help="keep what the scripts leave in this directory")
    asked = parser.parse_args()
    source = os.environ.get("FLUX_SOURCE")
    if source is None or shutil.which("flux") is None:
        parser.error("FLUX_SOURCE is to name flux-core's built source, and `flux` to be on PATH")
    recorded: Results = table("results")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        found = examine(
            asked.files or files(),
            Path(source),
            asked.where or Path(name),
            asked.jobs,
            recorded if asked.ours else None,
        )
    for case in better(recorded, found):
        print("passes now:", case)
    lost = worse(recorded, found)
    for case in lost:
        print("passed before, and fails:", case)
    passes, counted = share(found)
    print(f"{passes} of {counted} cases that count pass")
    if asked.write:
        whole = recorded | found
        RESULTS.write_text(
            HEAD + tomli_w.dumps({file: whole[file] for file in files() if file in whole})
        )
        version = subprocess.run(["flux", "version"], capture_output=True, text=True, check=True)
        told = page(whole, table("exempt"), table("reasons"), version.stdout, found)
        PAGE.write_text(told)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
