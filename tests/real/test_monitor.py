"""The monitor beside the schedulers of a live flux-core: it accuses nobody wrongly."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flux_trio.attach.judging import AUDITED
from tests.support import tapped
from tests.support.real_flux import NEEDS_FLUX, played

pytestmark = NEEDS_FLUX

MONITOR = [sys.executable, "-m", "flux_trio", "attach", "monitor"]


@pytest.mark.parametrize("scheduler", ["sched-simple", "sched-fifo", "sched-backfill"])
def test_a_monitor_that_joins_finds_what_is_known_and_nothing_else(scheduler: str) -> None:
    found = json.loads(played("monitor.sh", scheduler, *MONITOR))
    assert found["violations"] == []
    assert found["unexplained"] == []
    verdicts = {each["id"]: each["verdict"] for each in found["clauses"]}
    assert list(verdicts.values()).count("kept") > 220
    assert verdicts[AUDITED] == "kept"
    assert {each["clause"] for each in found["known"] if each["occurred"]} >= {"32.start.20"}


def test_a_node_that_only_the_scheduler_holds_is_named(tmp_path: Path) -> None:
    tap = tapped.executable(tmp_path, "tap")
    found = json.loads(played("leak.sh", str(tap), *MONITOR))
    (violation,) = found["violations"]
    assert violation["clause"] == AUDITED
    assert re.search(
        r"\(rank [01]\): core \d+: held by the scheduler, and not by the job manager and resource",
        violation["text"],
    )


def test_where_no_broker_is_the_monitor_says_so(tmp_path: Path) -> None:
    uri = f"local://{tmp_path}/local"
    told = subprocess.run([*MONITOR, "--to", uri], capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert told.stderr == f"flux-trio attach monitor: ERROR: {uri}: No such file or directory\n"
