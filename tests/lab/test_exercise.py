"""Schedulers and an execution service in processes of their own are driven and judged."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import click
import msgspec
import pytest
import trio
from click.testing import CliRunner, Result

from flux_trio.cli import main
from flux_trio.cli.lab.exercise import BROKEN, exit_with_verdict
from flux_trio.client import STATEDIR_VARIABLE
from flux_trio.config import Config
from flux_trio.editions import CLASSIC
from flux_trio.judge import Judgement
from flux_trio.lab.exercise import (
    EXEC_ACTS,
    SCHED_ACTS,
    SCHED_KIT,
    SCHED_LIMITED_ACTS,
    Ability,
    Ended,
    Findings,
    Order,
    Part,
    Report,
    process,
    sched_kit,
)
from flux_trio.lab.exercise import exercise as run_exercise
from flux_trio.services.module_process import CONFIG_VARIABLE
from tests.lab.planted import Row, rows

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "docs" / "howto" / "any-language"
NODE = shutil.which("node")
PATIENCE_S = 300.0  # only what hangs takes so long, however busy the machine is
PATIENCE = ("--deadline", f"{PATIENCE_S}s")
NEITHER = ("--without", "constraints,gpus")

needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


def exercise(*words: str) -> Result:
    done = CliRunner().invoke(main, ["exercise", *words], prog_name="flux-trio")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def ours(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """The command of a module of ours, as a program that somebody starts by hand."""
    monkeypatch.setenv(CONFIG_VARIABLE, msgspec.json.encode(Config()).decode())
    return [sys.executable, "-m", "flux_trio.services.module_process", name]


def played_by_a_wrong_fifo(directory: Path, right: str, wrong: str, titles: list[str]) -> Findings:
    """Acts, played by the scheduler of the page with a mistake; node starts in half a second."""
    for name in ("fifo.js", "flux.js"):
        text = (SCRIPTS / name).read_text()
        assert name == "flux.js" or text.count(right) == 1
        (directory / name).write_text(text.replace(right, wrong))
    wanted = SCHED_ACTS.chosen(Order.PRIORITY, frozenset(Ability))
    acts = [act for title in titles for act in wanted if act.title == title]
    play = partial(run_exercise, deadline_s=2.0)
    part = Part(process(["node", str(directory / "fifo.js")]), acts)
    return trio.run(play, sched_kit(frozenset(Ability)), [part], Report())


@needs_node
@pytest.mark.gate
def test_scheduler_of_the_page_keeps_every_clause_in_the_current_edition() -> None:
    script = str(SCRIPTS / "current" / "fifo.js")
    how = ("--edition", "current", "--limited", f"node {script} 2")
    done = exercise("sched", *PATIENCE, *NEITHER, *how, "--", "node", script)
    assert done.exit_code == 0, done.output
    assert "nodes are excluded while jobs run on them, and given back" in done.output
    assert "nodes are taken away" not in done.output


@needs_node
@pytest.mark.gate
def test_scheduler_of_the_page_keeps_every_clause_in_both_modes() -> None:
    script = str(SCRIPTS / "fifo.js")
    done = exercise(
        "sched", *PATIENCE, *NEITHER, "--limited", f"node {script} 2", "--", "node", script
    )
    assert done.exit_code == 0, done.output
    assert "nothing was asked for that it is without: constraints, gpus" in done.output
    acts = SCHED_ACTS.chosen(Order.PRIORITY, frozenset(Ability))
    for act in (each for each in (*acts, *SCHED_LIMITED_ACTS) if each.where(CLASSIC)):
        assert f"{act.title}: " in done.output
    assert " broken " not in done.output
    assert "stuck" not in done.output
    for clause in (
        "27.hello.12",
        "27.alloccancel.1",
        "27.deny.1",
        "27.ready.10",
        "27.hello.17",
        "27.ready.15",
        "28.error.2",
        "28.release.10",
        "28.shrink.4",
    ):
        assert f"\n{clause} " in done.output
        line = next(each for each in done.output.splitlines() if each.startswith(f"{clause} "))
        assert " kept " in line, line


@needs_node
@pytest.mark.gate
@pytest.mark.parametrize("row", rows("fifo.js"), ids=lambda row: row.name)
def test_mistake_in_the_scheduler_of_the_page_is_named(tmp_path: Path, row: Row) -> None:
    sought = {row.clause, "27.cancel.6"} if row.group == "cancel" else {row.clause}
    about = [act.title for act in SCHED_ACTS if sought & {*act.clauses}]
    titles = about or ["one job"]
    found = played_by_a_wrong_fifo(tmp_path, row.right, row.wrong, titles)
    assert row.clause in {each.clause for each in found.judgement.violations}, found.text()


@pytest.mark.gate
def test_our_execution_service_keeps_every_clause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(STATEDIR_VARIABLE, str(tmp_path))  # else it has no shell host
    done = exercise("exec", *PATIENCE, "--", *ours(monkeypatch, "job-exec"))
    assert done.exit_code == 0, done.output
    for act in EXEC_ACTS:
        assert f"{act.title}: {act.looks}" in done.output
    for clause in ("32.start.36", "32.hello.9"):
        line = next(each for each in done.output.splitlines() if each.startswith(f"{clause} "))
        assert " kept " in line, line


@pytest.mark.gate
def test_execution_service_of_the_page_keeps_every_clause() -> None:
    done = exercise("exec", *PATIENCE, "--", sys.executable, str(SCRIPTS / "exec.py"))
    assert done.exit_code == 0, done.output
    assert "stuck" not in done.output


def test_program_behind_a_script_is_killed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the scheduler that is started next could not register its service."""
    script = f"{shlex.join(ours(monkeypatch, 'sched'))}; exit 7"
    play = partial(run_exercise, deadline_s=PATIENCE_S)
    killed = [act for act in SCHED_ACTS if act.title == "the program is killed as it is asked"]
    part = Part(process(["sh", "-c", script]), killed)
    found = trio.run(play, SCHED_KIT, [part], Report())
    assert found.is_clean, found.text()


@pytest.mark.gate
def test_our_scheduler_keeps_every_clause(monkeypatch: pytest.MonkeyPatch) -> None:
    done = exercise("sched", *PATIENCE, "--order", "fifo", "--", *ours(monkeypatch, "sched"))
    assert done.exit_code == 0, done.output
    for act in SCHED_ACTS.chosen(Order.FIFO, frozenset()):
        if not act.where(CLASSIC):
            continue
        assert f"{act.title}: " in done.output
    assert "that it is without" not in done.output


def test_ability_that_is_none() -> None:
    done = exercise("sched", "--without", "gpus,memory", "true")
    assert done.exit_code == 2
    assert "Invalid value for '--without': expected constraints or gpus, got memory" in done.output


def test_program_that_is_not_there_is_wrong_usage() -> None:
    done = exercise("sched", "/nonexistent/program")
    assert done.exit_code == 2
    assert "/nonexistent/program: No such file or directory" in done.output


def test_command_in_limited_mode_that_is_no_command() -> None:
    done = exercise("sched", "--limited", "node 'x", "true")
    assert done.exit_code == 2
    assert "Invalid value for '--limited': node 'x: No closing quotation" in done.output


@pytest.mark.parametrize("stuck", ["", "event clean of job ƒ1: not within 5 s"])
def test_exit_code_of_acts_that_are_stuck_though_no_clause_is_broken(stuck: str) -> None:
    kept = Judgement("", 0, {}, (), {})
    assert kept.is_kept

    @click.command
    @click.pass_context
    def ended(ctx: click.Context) -> None:
        how = Ended(SCHED_ACTS[0], stuck, (), ())
        exit_with_verdict(ctx, Findings([how], (), kept, {}))

    done = CliRunner().invoke(ended)
    assert done.exit_code == (BROKEN if stuck else 0)
    assert ("stuck in 'one job'" in done.output) == bool(stuck)


def test_program_that_ends_at_once_is_an_error() -> None:
    done = exercise("sched", *PATIENCE, "sh", "-c", "exit 3")
    assert done.exit_code == 1
    expected = "job-manager.sched-ready of the program: the program has ended, with 3"
    assert expected in done.output


def test_program_that_never_serves_is_an_error_and_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flux_trio.lab.exercise.program.TERM_S", 0.2)
    pid = tmp_path / "pid"
    script = f'echo $$ > {pid}; trap "" TERM; while :; do sleep 0.1; done'
    done = exercise("exec", "--deadline", "1s", "sh", "-c", script)
    assert done.exit_code == 1
    assert "job-manager.exec-hello of the program: not within 1 s" in done.output
    alive = subprocess.run(
        ["kill", "-0", pid.read_text().strip()], check=False, capture_output=True
    )
    assert alive.returncode == 1
