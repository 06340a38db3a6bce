"""Our execution service runs the jobs of a live flux-core, is killed and started again."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from flux_trio.formats import ResourceSet
from flux_trio.judge import Verdict
from flux_trio.trace import read_trace
from tests.support import recorded
from tests.support.real_flux import NEEDS_FLUX, played

pytestmark = NEEDS_FLUX

CORES = 128  # more jobs run at once than this machine has


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which the story has left what flux says."""
    directory = tmp_path_factory.mktemp("exec")
    r = ResourceSet.build([(0, (1 << CORES) - 1, 0)], lambda rank: f"node{rank}")
    (directory / "R").write_text(json.dumps(r.to_json()))
    config = directory / "flux.toml"
    config.write_text(f'[resource]\npath = "{directory}/R"\nnoverify = true\n')
    words = [str(directory), sys.executable, "-m", "flux_trio"]
    played("exec.sh", *words, brokers=1, config=config)
    return directory


def test_no_job_is_lost_and_none_runs_twice(told: Path) -> None:
    assert sorted(map(int, (told / "ran").read_text().split())) == list(range(1, 101))
    codes = {line.split()[0]: line.split()[2] for line in (told / "jobs").read_text().splitlines()}
    assert {cc: codes[f"cc-{cc}"] for cc in range(1, 101)} == {
        cc: str(cc % 3) for cc in range(1, 101)
    }


def test_every_job_of_the_instance_is_over(told: Path) -> None:
    lines = (told / "jobs").read_text().splitlines()
    assert Counter(line.split()[1] for line in lines) == {
        "COMPLETED": 34,
        "FAILED": 70,
        "CANCELED": 2,
        "TIMEOUT": 1,
    }
    assert (told / "namespaces").read_text().split()[3:] == ["primary", "0", "0x00000000"]


def test_exit_codes_are_those_of_flux_core(told: Path) -> None:
    """flux knows no status of a job that ended while no service was there: 1."""
    codes = dict(line.split() for line in (told / "codes").read_text().splitlines())
    assert codes == {
        "killed": "137",
        "missing": "127",
        "limited": "142",
        "signaled": "7",
        "canceled": "1",
        "ended": "1",
        "fifth": "2",
        "service": "0",
    }


def test_programs_of_flux_show_output_and_send_input(told: Path) -> None:
    assert "out 5\nend 5\n" in (told / "fifth.out").read_text()
    assert "ready\ngot it\n" in (told / "signaled.out").read_text()
    assert (told / "input.out").read_text() == "50000\n"
    assert sorted((told / "killed.out").read_text().split()) == ["0", "1"]


def test_exec_eventlog_has_the_events_of_flux_core(told: Path) -> None:
    names = [line.split()[1] for line in (told / "exec.eventlog").read_text().splitlines()]
    begin = ["init", "starting", "shell.init", "shell.start", "reattach"]
    assert names == [*begin, "shell-exit", "complete", "done"]


def test_judge_accuses_nobody_but_flux_core_of_two_jobs(told: Path) -> None:
    """Those that were canceled while no service was there: they are freed without a release."""
    with (told / "trace").open(encoding="utf-8") as trace:
        judgement = recorded.judged_source(read_trace(trace), at_rest=True)
    accused = Counter((each.clause, each.party) for each in judgement.violations)
    assert set(accused) <= {("21.states.6", "job-manager"), ("32.start.39", "job-manager")}
    assert accused["21.states.6", "job-manager"] == 2
    verdicts = judgement.verdicts.items()
    kept = [name for name, verdict in verdicts if verdict is Verdict.KEPT and name[:3] == "32."]
    assert len(kept) >= 40
