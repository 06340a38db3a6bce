"""Signals that end `flux-trio fuzz`: a report of what was played, and no worker is left."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from flux_trio.lab import draw_plan, plan_of_file

PATIENCE_S = 300.0  # a process that never ends fails the test

TELLING = """\
import os
from flux_trio.lab import at_rest


@at_rest("tells")
def tells(world):
    \"\"\"Says that a seed was played, and by whom.\"\"\"
    with open(os.environ["TOLD"], "a") as file:
        file.write(f"{os.getpid()}\\n")
    return ""
"""


@contextmanager
def campaign(directory: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], set[int]]]:
    """Run fuzz in a process group of its own; wait until both workers have played a seed."""
    (directory / "telling.py").write_text(TELLING)
    told = directory / "told"
    os.mkfifo(told)
    command = [sys.executable, "-m", "flux_trio", "fuzz", "--seeds", "0:999999", "--workers", "2"]
    with subprocess.Popen(
        [*command, "--property", "telling:tells", *options],
        cwd=directory,
        env={**os.environ, "TOLD": str(told)},
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            with os.fdopen(os.open(told, os.O_RDWR)) as lines:  # it has no end
                workers: set[int] = set()
                while len(workers) < 2:
                    workers.add(int(lines.readline()))
                yield process, workers
        finally:
            process.kill()


def wait_for_end(workers: set[int]) -> None:
    """Wait until the processes have ended, which may be children of another process."""
    for pid in workers:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([handle], [], [], PATIENCE_S)
        os.close(handle)
        assert ended, f"process {pid} has not ended"


@pytest.mark.gate
@pytest.mark.parametrize(
    ("signum", "to_all"), [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGTERM, True)]
)
def test_signal_ends_a_campaign_with_its_report(
    tmp_path: Path, signum: signal.Signals, to_all: bool
) -> None:
    """A terminal sends SIGINT to all processes of the group.

    timeout(1) sends SIGTERM twice, to the process and to all.
    """
    with campaign(tmp_path, "--json", "--junit", "junit.xml") as (process, workers):
        if to_all:
            os.killpg(process.pid, signum)
        for _ in range(1000 if signum == signal.SIGTERM else 0):  # two at once would count as one
            process.send_signal(signum)
        out, err = process.communicate()
        wait_for_end(workers)
    assert (process.returncode, err) == (3, "flux-trio fuzz: seeds 0:999999\n")
    report = json.loads(out)
    assert report["interrupted"] is True
    cases = ElementTree.parse(tmp_path / "junit.xml").findall(".//testcase")
    assert len(cases) == report["worlds"] == report["seeds"][1]


INTERRUPTED = """\
import multiprocessing
import signal
from flux_trio.lab import after_each_step

worlds = [None]


@after_each_step("never")
def never(world):
    if multiprocessing.parent_process() is None and worlds[-1] is not world:
        worlds.append(world)
        if len(worlds) == 4:
            signal.raise_signal(signal.SIGINT)
    return "there is a world"
"""


@pytest.mark.gate
@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_plan_that_is_made_small_is_written_when_a_signal_comes(tmp_path: Path, depth: str) -> None:
    """Its property plays the user who types Ctrl-C."""
    (tmp_path / "hasty.py").write_text(INTERRUPTED)
    command = [sys.executable, "-m", "flux_trio", "fuzz", "--seeds", "15:16", "--workers", "1"]
    options = ["--property", "hasty:never", "--depth", depth]
    result = subprocess.run(
        [*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (1, "")
    lines = result.stdout.splitlines()
    assert lines[1:4] == ["seed 15 breaks never; see fuzz-found/seed-15", "", "never is broken"]
    said = [line for line in lines if line.startswith("interrupted: ")]
    assert said == ["interrupted: the plan of seed 15 may not be the smallest"]
    plan = plan_of_file(tmp_path / "fuzz-found" / "seed-15" / "plan.toml")
    assert len(plan.jobs) < len(draw_plan(15).jobs)
    assert (tmp_path / "fuzz-found" / "seed-15" / "story.html").exists()


@pytest.mark.gate
def test_campaign_whose_worker_is_killed_ends_with_its_report(tmp_path: Path) -> None:
    with campaign(tmp_path, "--json", "--junit", "junit.xml", "--keep-going") as (process, workers):
        os.kill(min(workers), signal.SIGKILL)
        out, err = process.communicate()
        wait_for_end(workers)
    assert process.returncode == 2
    report = json.loads(out)
    said, error = err.splitlines()
    assert said == "flux-trio fuzz: seeds 0:999999"
    seed = report["seeds"][1]
    assert error.startswith(f"flux-trio fuzz: ERROR: the workers have ended at seed {seed} or lat")
    assert (report["interrupted"], report["worlds"]) == (False, seed)
    cases = ElementTree.parse(tmp_path / "junit.xml").findall(".//testcase")
    assert len(cases) == seed


def test_workers_end_with_a_campaign_that_is_killed(tmp_path: Path) -> None:
    with campaign(tmp_path) as (process, workers):
        process.kill()
        wait_for_end(workers)
