"""Gives a scheduler of others much work in an instance of flux-trio, under the live monitor.

The work is that of `tests.real.loads`: many jobs at once, then a log with shortened run times.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.real.conformance.results import Broken, Loaded, today
from tests.real.conformance.testees import Examinee
from tests.support.real_flux import REAL

NJOBS: Final = 1000
LOGGED: Final = 100
"""How many jobs the log has."""
LOG: Final = REAL.parent / "data" / "workloads" / f"lassen-{LOGGED}.csv"
LOAD_S_MAX: Final = 900.0
CONFIG: Final = """
edition = "current"
[exec]
simulate = true
[[resource.config]]
hosts = "node[0-127]"
cores = "0-43"
"""
_SAID: Final = re.compile(
    r"^\S+ \S+ monitor\.err: (?P<clause>[a-z0-9.-]+)(?: broken by (?P<party>\S+)[^:]*)?: "
    r"(?P<text>.+) \(record \d+\)$",
    re.MULTILINE,
)
_ENDED: Final = re.compile(r"^(\d+) jobs: (\d+) successful$", re.MULTILINE)


def load(testee: Examinee, directory: Path) -> Loaded:
    """Return how a scheduler of others has done its work; AssertionError if not to the end.

    What the monitor says more than ten times is counted as ten.
    """
    config = directory / "flux.toml"
    config.write_text(CONFIG)
    state = directory / "s"
    start = [sys.executable, "-m", "flux_trio", "start", "-c", str(config), "--monitor"]
    program = [sys.executable, "-m", "tests.real.loads", testee.scheduler, str(NJOBS), str(LOG)]
    began = time.monotonic()
    done = subprocess.run(
        [*start, "--statedir", str(state), *program],
        cwd=REAL.parents[1],
        env={**os.environ, "FLUX_URI": f"local://{state}/local-0"},
        capture_output=True,
        timeout=LOAD_S_MAX,
        check=False,
        text=True,
    )
    ended = _ENDED.search(done.stdout)
    assert ended is not None, done.stderr[-4000:]
    assert done.returncode == 0, done.stderr[-4000:]
    found = Loaded(today(), *map(int, ended.groups()), seconds=time.monotonic() - began)
    for said in _SAID.finditer(done.stderr):
        by = found.broken.setdefault(said["party"] or "nobody", {})
        first = by.get(said["clause"], Broken(said["clause"], 0, said["text"]))
        by[said["clause"]] = Broken(first.clause, first.count + 1, first.text)
    assert ("monitor.err" in done.stderr) == bool(found.broken), done.stderr[-4000:]
    return found
