"""Plays the stories of every testee and measures rates, keeps what was found, writes the page.

    python -m tests.real.conformance [--keep DIRECTORY] [NAME...]

With names only these testees are played; what was found of the others stays. `loads` and `rates`
are names too, and `page` plays nothing. DIRECTORY gets the traces of what was played.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.real.conformance import page, rates
from tests.real.conformance.judging import examine
from tests.real.conformance.loading import load
from tests.real.conformance.results import Speeds, machine, read, versions, write
from tests.real.conformance.testees import Examinee, examinees, others_here
from tests.support.real_flux import REAL

AT_ONCE: Final = 3
"""Instances, which wait most of the time."""
LOADS: Final = "loads"
RATES: Final = "rates"
PAGE: Final = "page"
NOVERIFY: Final = "[resource]\nnoverify = true\n"


def measured() -> Speeds | None:
    """Return the rates of all schedulers in one instance of flux-core; None without its source."""
    if "FLUX_SOURCE" not in os.environ:
        print("rates: FLUX_SOURCE is to name flux-core's source: left as they are", file=sys.stderr)
        return None
    names = [each.scheduler for each in examinees() if not each.is_ours]
    asked = [str(each) for each in (rates.NODES, rates.JOBS, rates.REPEATS)]
    program = [sys.executable, "-m", "tests.real.conformance.rates", *asked, *names]
    busy = machine()
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write(NOVERIFY)
        config.flush()
        command = ["flux", "start", f"--config-path={config.name}", *program]
        done = subprocess.run(
            command, cwd=REAL.parents[1], stdout=subprocess.PIPE, text=True, check=True
        )
    return Speeds(busy, rates.JOBS, json.loads(done.stdout.splitlines()[-1]))


def main(names: list[str], keep: Path | None = None) -> None:
    results = read()
    every = {each.name: each for each in examinees()}
    chosen = [every[name] for name in names if name in every] if names else [*every.values()]

    def play(testee: Examinee) -> None:
        results.testees[testee.name] = examine(testee, keep)
        print(f"{testee.name}: {results.testees[testee.name].summary()}", flush=True)
        write(results)

    results.versions |= versions()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        played = [pool.submit(play, each) for each in chosen]
    if not names or LOADS in names:
        for testee in others_here():
            with tempfile.TemporaryDirectory() as directory:
                loaded = results.loads[testee.name] = load(testee, Path(directory))
            print(f"{testee.name}: {loaded.nsuccessful} of {loaded.njobs} jobs", flush=True)
    if not names or RATES in names:
        results.speeds = measured() or results.speeds
    write(results)
    page.write(results)
    for each in played:
        each.result()  # raises what has kept one from being examined


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make real-conformance")
    parser.add_argument("names", nargs="*", help="testees, loads, rates, page; without, all")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="where traces are kept")
    main(**vars(parser.parse_args()))
