"""`flux-trio simulate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flux_trio.cli.errors import CommandError

if TYPE_CHECKING:
    from flux_trio.sim import SimulationResult

_COUNT = click.IntRange(min=1)


class UsersParam(click.ParamType[str]):
    """A number of users, or the word column."""

    name = "users"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        is_count = value.isascii() and value.isdigit() and int(value) > 0
        if not is_count and value != "column":
            self.fail(f"expected a number from 1, or column: got {value}", param, ctx)
        return value


@click.command()
@click.argument("workload", type=click.Path(path_type=Path), metavar="WORKLOAD")
@click.option("--nodes", type=_COUNT, required=True, metavar="N", help="Nodes of the machine.")
@click.option("--cores", type=_COUNT, required=True, metavar="C", help="Cores of each node.")
@click.option(
    "--gpus",
    type=click.IntRange(min=0),
    default=0,
    metavar="G",
    show_default=True,
    help="GPUs of each node.",
)
@click.option(
    "--policy",
    type=click.Choice(["fifo", "easy", "conservative"]),
    default="fifo",
    show_default=True,
    help="Scheduling policy.",
)
@click.option("--seed", type=int, default=0, metavar="S", show_default=True, help="Random seed.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE.svg",
    help="Draw utilisation and queue length over time.",
)
@click.option("--limit", type=_COUNT, metavar="N", help="Take only the first N jobs.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Queues, limits and plugins (TOML).",
)
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="FILE",
    help="Load this jobtap plugin, by file or name. Several plugins are compared, one run each.",
)
@click.option(
    "--users",
    type=UsersParam(),
    metavar="N|column",
    help="Submit the jobs as N made-up users, or as the users of the log.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="Draw how the runs served each user and bank: waiting, shares and priorities.",
)
def simulate(
    *,
    workload: Path,
    nodes: int,
    cores: int,
    gpus: int,
    policy: Any,
    seed: int,
    as_json: bool,
    plot: Path | None,
    limit: int | None,
    config: Path | None,
    plugins: tuple[str, ...],
    users: str | None,
    report: Path | None,
) -> None:
    """Run the jobs of a log on a simulated machine, in simulated time, and print the figures.

    WORKLOAD is in the Standard Workload Format, or comma-separated values with the columns JobID,
    NNodes, NCPUS, Timelimit, Submit and Elapsed, as Slurm's sacct writes them. The columns User and
    Account are read if they are there. If NCPUS is 0 in every row, a job has all cores of its
    NNodes nodes. The instance is a real one; only the processes are simulated. The same seed gives
    the same run.

    The conf of a plugin comes from the directive in the configuration that loads it.

    Exit codes: 0, 1 if the workload cannot be read or some jobs never end, 2 for wrong usage.
    """
    from flux_trio.cli.simulating import expected_failures, plan, read_config_file, read_jobs
    from flux_trio.sim import make_machine
    from flux_trio.sim import simulate as run

    jobs = read_jobs(workload, limit, users, seed, cores)
    planned = list(plan(read_config_file(config), plugins))
    results = {}
    for each in planned:
        with expected_failures(), _progress_bar(len(jobs), each.name) as progress:
            results[each.name] = run(
                jobs,
                make_machine(nodes, cores, gpus),
                policy,
                seed,
                config=each.config,
                progress=progress,
            )
    title = f"{workload.name} on {nodes} nodes, {policy}"
    if plot is not None:
        _draw(results[planned[0].name], plot, title)
    if report is not None:
        _report(results, report, title)
    _print(results, seed, as_json=as_json)


def _print(results: Mapping[str, SimulationResult], seed: int, *, as_json: bool) -> None:
    """Print the figures; of several runs, each under its name."""
    from flux_trio.cli.events import json_text
    from flux_trio.cli.simulation_report import report_json, report_lines

    if as_json:
        reports = {name: report_json(each.metrics, seed) for name, each in results.items()}
        click.echo(json_text(reports if len(reports) > 1 else next(iter(reports.values()))))
        return
    for name, result in results.items():
        if len(results) > 1:
            click.echo(f"{name}:")
        for line in report_lines(result.metrics):
            click.echo(line)


@contextmanager
def _progress_bar(njobs: int, policy: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar of the ended jobs on standard error if it is a terminal, else yield None."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(policy, total=njobs)
        yield lambda ended, _all: bar.update(task, completed=ended)


def _draw(result: SimulationResult, plot: Path, title: str) -> None:
    from flux_trio.views import draw_simulation

    metrics = result.metrics
    picture = draw_simulation(
        title,
        metrics.utilisation_series,
        metrics.queue_length_series,
        metrics.t_begin,
        metrics.t_end,
    )
    _write(plot, picture)


def _report(results: Mapping[str, SimulationResult], report: Path, title: str) -> None:
    from flux_trio.sim import served_run
    from flux_trio.views import served_page

    runs = [
        served_run(name, each.jobs, each.metrics, each.shares) for name, each in results.items()
    ]
    _write(report, served_page(title, runs))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
