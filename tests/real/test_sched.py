"""Schedulers of a live flux-core, ours and its own: nothing is booked twice, no job is lost.

Small ones; with more jobs: python -m tests.real.storm in `flux start`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.real_flux import NEEDS_FLUX, told

pytestmark = NEEDS_FLUX

OURS = ["attach:fifo", "attach:easy", "attach:conservative"]
THEIRS = ["sched-simple", "sched-fifo", "sched-backfill"]
CONFIG = """
[resource]
noverify = true
[[resource.config]]
hosts = "node[0-3]"
cores = "0-3"
"""
HOUSEKEEPING = """
[job-manager.housekeeping]
command = ["sh", "-c", "sleep 0.0$((${{FLUX_URI##*-}} + 2)); echo $FLUX_JOB_ID ${{FLUX_URI##*-}} \
$(date +%s.%N) >> {log}"]
release-after = "0"
"""


def played(config: Path, toml: str, module: str, *args: str) -> Any:
    """Run a program of tests/real in an instance of four nodes; return what it tells."""
    config.write_text(toml)
    command = [sys.executable, "-m", f"tests.real.{module}", *args]
    return json.loads(told(command, brokers=4, config=config))


@pytest.mark.parametrize("scheduler", OURS + THEIRS)
def test_nothing_is_booked_twice_in_a_storm(scheduler: str, tmp_path: Path) -> None:
    """Cancels, drains, stops of the queue, reloads; nodes come back one by one.

    A scheduler of flux-core may end in it: what housekeeping gives back between hello and ready is
    lost on its way to it (departures/free-before-ready.py). The storm is judged to that point.
    """
    log = tmp_path / "log"
    config = CONFIG + HOUSEKEEPING.format(log=log)
    found = played(tmp_path / "flux.toml", config, "storm", scheduler, "40", "1", str(log))
    if found["crashed"]:
        assert scheduler in THEIRS
        assert "final R mismatch" in found["crashed"]
        assert (found["twice"], found["lost"]) == ([], []), "up to then all was well"
        return
    assert found["ran"] > 30
    assert found["housekept"] > found["ran"]
    good = {key: found[key] for key in ("jobs", "twice", "wrong", "lost", "leaked")}
    assert good == {"jobs": 40, "twice": [], "wrong": [], "lost": [], "leaked": []}


def test_no_job_is_lost_or_runs_twice_when_the_scheduler_is_killed(tmp_path: Path) -> None:
    ran = str(tmp_path / "ran")
    found = played(tmp_path / "flux.toml", CONFIG, "killed", "attach:easy", "32", ran)
    wrong: dict[str, Any] = {
        key: [] for key in ("more than once", "lost", "wrong", "twice", "failed")
    }
    assert found == {"jobs": 32, "ran": 32, **wrong}
