from __future__ import annotations

import json
from pathlib import Path

import click.testing

from flux_trio.cli import main

WORKLOAD = Path(__file__).parents[1] / "data" / "workloads" / "lassen-100.csv"
MACHINE = ("--nodes", "792", "--cores", "40", "--gpus", "4")


def simulate(*args: object) -> click.testing.Result:
    runner = click.testing.CliRunner()
    return runner.invoke(main, ["simulate", *map(str, args)], prog_name="flux-trio")


def test_a_run_is_told_in_figures() -> None:
    result = simulate(WORKLOAD, *MACHINE, "--limit", 10)
    assert result.exit_code == 0
    names = [line[:22].strip() for line in result.stdout.splitlines()]
    assert names == [
        "jobs",
        "completed",
        "timed out",
        "makespan",
        "mean wait",
        "95th percentile wait",
        "mean bounded slowdown",
        "utilisation",
    ]
    assert result.stderr == ""  # a bar is for terminals


def test_json_has_the_figures_in_seconds_and_repeats() -> None:
    first, second = (simulate(WORKLOAD, *MACHINE, "--limit", 10, "--json") for _ in range(2))
    assert first.stdout == second.stdout
    figures = json.loads(first.stdout)
    assert figures["jobs"] == 10
    assert sum(figures["outcomes"].values()) == 10
    assert figures["makespan_s"] > 0
    assert 0 < figures["utilisation"] < 1


def test_a_job_that_does_not_fit_is_counted() -> None:
    result = simulate(WORKLOAD, "--nodes", 1, "--cores", 4, "--limit", 3)
    assert "  denied               3\n" in result.stdout
    assert "mean wait              -\n" in result.stdout


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    plot = tmp_path / "run.svg"
    result = simulate(WORKLOAD, *MACHINE, "--limit", 10, "--policy", "easy", "--plot", plot)
    assert result.exit_code == 0
    assert "lassen-100.csv on 792 nodes, easy" in plot.read_text()
    result = simulate(WORKLOAD, *MACHINE, "--limit", 1, "--plot", tmp_path)
    assert result.stderr == f"flux-trio simulate: ERROR: {tmp_path}: Is a directory\n"


def test_a_workload_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    workload = tmp_path / "w.csv"
    workload.write_text("JobID\n1\n")
    result = simulate(workload, *MACHINE)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"flux-trio simulate: ERROR: {workload}, line 1: expected")
