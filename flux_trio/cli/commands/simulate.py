"""`flux-trio simulate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flux_trio.cli.errors import CommandError

if TYPE_CHECKING:
    from flux_trio.sim import SimulationResult, WorkloadJob

_COUNT = click.IntRange(min=1)


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
    help="GPUs of each.",
)
@click.option(
    "--policy",
    type=click.Choice(["fifo", "easy", "conservative"]),
    default="fifo",
    show_default=True,
    help="Scheduling policy.",
)
@click.option("--seed", type=int, default=0, metavar="S", show_default=True, help="Of all chance.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE.svg",
    help="Draw utilisation and queue length over time.",
)
@click.option("--limit", type=_COUNT, metavar="N", help="Take the first N jobs only.")
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
) -> None:
    """Run the jobs of a log on a simulated machine, in simulated time, and print what came of it.

    WORKLOAD is in the Standard Workload Format, or comma-separated values with the columns JobID,
    NNodes, NCPUS, Timelimit, Submit and Elapsed, as Slurm's sacct writes them. All of a whole
    instance but processes is real; the same seed gives the same run.

    Exit codes: 0, 1 if the workload cannot be read or jobs are left that never end, 2 for wrong
    usage.
    """
    import msgspec

    from flux_trio.cli.simulation_report import report_json, report_lines
    from flux_trio.sim import SimulationStalled, make_machine
    from flux_trio.sim import simulate as run

    jobs = _read(workload)[:limit]
    machine = make_machine(nodes, cores, gpus)
    try:
        with _progress_bar(len(jobs), policy) as progress:
            result = run(jobs, machine, policy, seed, progress=progress)
    except SimulationStalled as error:
        raise CommandError(str(error)) from None
    if plot is not None:
        _draw(result, plot, f"{workload.name} on {nodes} nodes, {policy}")
    if as_json:
        click.echo(msgspec.json.encode(report_json(result.metrics, seed)))
    else:
        for line in report_lines(result.metrics):
            click.echo(line)


def _read(workload: Path) -> list[WorkloadJob]:
    from flux_trio.sim import read_workload

    try:
        with workload.open() as lines:
            return read_workload(lines, str(workload))
    except OSError as error:
        raise CommandError(f"{workload}: {error.strerror}") from None
    except ValueError as error:
        raise CommandError(str(error)) from None


@contextmanager
def _progress_bar(njobs: int, policy: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error while the jobs end, if that is a terminal."""
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
    try:
        plot.write_text(picture)
    except OSError as error:
        raise CommandError(f"{plot}: {error.strerror}") from None
