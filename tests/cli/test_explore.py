"""`flux-trio explore`: a small world, its report, and the story of what is broken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click.testing
import pytest

from flux_trio.cli import main
from flux_trio.explore import WORLDS
from flux_trio.faults import Crash, JobPlan, Plan
from flux_trio.faults.plan import plan_from_toml, plan_to_toml
from flux_trio.protocols.execution import EXECUTION, ExecEvent, ExecState
from tests.support import reborn

pytestmark = pytest.mark.skipif(reborn.is_on, reason=reborn.NOT_IN_SEARCHES)

ONE = Plan(seed=0, nnodes=1, cores=1, jobs=(JobPlan(),))
EXEC = Plan(seed=0, nnodes=1, cores=1, jobs=(JobPlan(run=0.0),), faults=(Crash("job-exec", 1),))


def explore(*args: object) -> click.testing.Result:
    runner = click.testing.CliRunner()
    return runner.invoke(main, ["explore", *map(str, args)], prog_name="flux-trio")


def written(path: Path, plan: Plan) -> Path:
    path.write_text(plan_to_toml(plan))
    return path


def test_worlds_are_listed() -> None:
    assert explore("--list").stdout.split() == list(WORLDS)


def test_every_state_of_a_plan_is_met(tmp_path: Path) -> None:
    result = explore(written(tmp_path / "plan.toml", ONE))
    assert result.exit_code == 0
    assert result.stdout.endswith("every state was met; no property was broken\n")


def test_report_as_json(tmp_path: Path) -> None:
    result = explore(written(tmp_path / "plan.toml", ONE), "--json")
    found = json.loads(result.stdout)
    assert (found["complete"], found["broken"]) == (True, None)
    assert 0 < found["at_rest"] < found["states"] <= found["transitions"]


def test_search_that_is_not_complete_says_so(tmp_path: Path) -> None:
    result = explore("exec-crash", "--max-states", 50, "--output", tmp_path)
    assert result.exit_code == 3
    assert "the search is not complete; no property was broken" in result.stdout


def test_story_of_what_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(EXECUTION.rows[ExecState.STARTING], ExecEvent.LOST, ExecState.STARTING)
    path = written(tmp_path / "mine.toml", EXEC)
    result = explore(path, "--output", tmp_path / "out", "--world-only")
    assert result.exit_code == 1
    directory = tmp_path / "out" / "mine"
    assert f"see {directory}" in result.stdout
    assert (directory / "story.txt").read_text() in result.stdout
    assert "<html" in (directory / "story.html").read_text()
    assert plan_from_toml((directory / "plan.toml").read_text()) == EXEC


@pytest.mark.parametrize(
    ("to", "why"), [(">&-", "it is closed"), (">/dev/full", "No space left on device")]
)
def test_report_that_cannot_be_printed_is_no_broken_property(
    tmp_path: Path, to: str, why: str
) -> None:
    path = written(tmp_path / "plan.toml", ONE)
    line = f"{sys.executable} -m flux_trio explore {path} {to}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == f"flux-trio explore: ERROR: standard output: {why}\n"
    assert done.returncode == 2


def test_what_is_broken_is_told_though_its_story_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(EXECUTION.rows[ExecState.STARTING], ExecEvent.LOST, ExecState.STARTING)
    path = written(tmp_path / "mine.toml", EXEC)
    (tmp_path / "mine").write_text("a file where the directory of the story would be")
    result = explore(path, "--output", tmp_path, "--world-only")
    assert result.exit_code == 1
    assert " is broken after " in result.stdout
    assert f"{tmp_path / 'mine'}: File exists" in result.stderr
    result = explore(path, "--output", tmp_path, "--world-only", "--json")
    assert json.loads(result.stdout)["broken"]["directory"] is None


def test_directory_that_cannot_be_made_is_refused_before_the_search(tmp_path: Path) -> None:
    result = explore("exec-crash", "--output", "/proc/nosuch")
    assert result.exit_code == 2
    assert "/proc/nosuch: expected a directory that can be written" in result.stderr


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nothing", "expected a file or one of the worlds exec-crash"),
        ("crash.toml", "got crash kvs"),
    ],
)
def test_what_is_not_explored(tmp_path: Path, source: str, said: str) -> None:
    written(tmp_path / "crash.toml", Plan(seed=0, faults=(Crash("kvs", 1),)))
    result = explore(tmp_path / source if source.endswith("toml") else source)
    assert result.exit_code == 2
    assert said in result.stderr


def test_missing_world() -> None:
    assert explore().exit_code == 2


def test_file_that_is_no_text_is_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(bytes(range(256)))
    result = explore(path)
    assert result.exit_code == 2
    assert "expected a plan as TOML, got bytes that are no UTF-8 text" in result.stderr
