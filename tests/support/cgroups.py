"""Real control groups for tests: one with none beneath it, and whether any can be had."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from flux_trio.shell import cgroups
from flux_trio.shell.job_cgroups import SWITCH


@cache
def why_none() -> str:
    """Why no cgroup can be made here; empty if one can."""
    if os.environ.get(SWITCH) == "0":
        return f"job cgroups are off ({SWITCH}=0)"
    home = cgroups.own_cgroup()
    if home is None:
        return "no cgroup of version 2 is mounted"
    try:
        probe = Path(tempfile.mkdtemp(prefix="probe-", dir=home))
    except OSError as error:
        return f"{home}: {error.strerror}"
    try:
        command = ["sh", "-c", 'echo 0 >"$0"', str(probe / "cgroup.procs")]
        entered = subprocess.run(command, check=False, capture_output=True, text=True)
        return entered.stderr.strip()
    finally:
        cgroups.remove(probe)


@contextmanager
def limited_to(descendants: int) -> Iterator[Path]:
    """Within it, this process and what it starts can have so many cgroups, and no more.

    It is the cgroup that they are in. What a test that fails leaves there is killed.
    """
    home = cgroups.own_cgroup()
    assert home is not None
    cgroup = Path(tempfile.mkdtemp(prefix="limited-", dir=home))
    try:
        (cgroup / "cgroup.max.descendants").write_text(str(descendants))
        cgroups.enter(cgroup)
        yield cgroup
    finally:
        cgroups.enter(home)
        while not cgroups.remove(cgroup):
            cgroups.kill_all(cgroup)
            time.sleep(0.01)


def cgroup_of(pid: int | str) -> str:
    """The line of /proc that names the cgroup of a process."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(line for line in lines if line.startswith("0::"))
