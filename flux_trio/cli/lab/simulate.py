"""`flux-trio simulate`."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from flux_trio.cli.connection import completing
from flux_trio.cli.terminal.errors import CommandError, write_text
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import POLICY, Offer, Parsed, no_offer, spoken_edition

if TYPE_CHECKING:
    from flux_trio.cli.lab.simulating import Planned
    from flux_trio.sim import Depth, SimulationResult

FAILED = 1

_COUNT = click.IntRange(min=1)
UNITS_MAX = 1 << 30
"""Cores and GPUs of all nodes together: more take gigabytes and many minutes."""
_NOT_SHOWN = ("as_json", "report", "trace")


def _check_users(text: str) -> str:
    """Return a number of users, or the word column."""
    is_count = text.isascii() and text.isdigit() and int(text) > 0
    if not is_count and text != "column":
        raise click.BadParameter(f"expected a number from 1, or column: got {text}")
    return text


def _listed(word: Callable[[str], str], offer: Offer = no_offer) -> Parsed:
    """Return the type of words with commas between, each read and completed by these."""

    def parse(text: str) -> tuple[str, ...]:
        words = dict.fromkeys(text.split(","))  # each one counts once
        if "" in words:
            raise click.BadParameter(f"expected names with commas between: got {text!r}")
        return tuple(map(word, words))

    def complete(incomplete: str) -> list[CompletionItem]:
        head, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{head}{comma}{each.value}") for each in offer(last)]

    return Parsed("list", parse, complete)


def _check_plotly(_ctx: click.Context, _param: click.Parameter, report: Path | None) -> Path | None:
    """Return `report`; raise CommandError before the runs if no page can be drawn."""
    if report is not None and importlib.util.find_spec("plotly") is None:
        text = "--report needs the package plotly: pip install 'flux-trio[report]'"
        raise CommandError(text)
    return report


def _check_machine(nodes: int, cores: int, gpus: int) -> None:
    """Raise a usage error for a machine that is too large."""
    from flux_trio.formats import HOSTS_MAX
    from flux_trio.formats.idset import IDS_MAX

    bounds = {"--nodes": (nodes, HOSTS_MAX), "--cores": (cores, IDS_MAX), "--gpus": (gpus, IDS_MAX)}
    for option, (value, most) in bounds.items():
        if value > most:
            raise click.BadParameter(
                f"expected at most {most}: got {value}", param_hint=f"'{option}'"
            )
    nunits = nodes * (cores + gpus)
    if nunits > UNITS_MAX:
        expected = f"expected at most {UNITS_MAX} cores and GPUs of all nodes"
        raise click.UsageError(f"--nodes, --cores, --gpus: {expected}: got {nunits}")


@click.command(cls=Command)
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
    "policies",
    type=_listed(POLICY.parse, POLICY.offer),
    default="fifo",
    show_default=True,
    metavar="POLICY,...",
    help="Scheduling policy: fifo, easy, conservative, or a class of yours, FILE.py:Class. Several "
    "are compared, one run each.",
)
@click.option("--seed", type=int, default=0, metavar="S", show_default=True, help="Random seed.")
@click.option(
    "--depth",
    type=click.Choice(["cores", "stack"]),
    help="Run the cores of the services alone, or the services under Trio, which takes longer.  "
    "[default: the cores, unless a plugin may wait]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--limit", type=_COUNT, metavar="N", help="Take only the first N jobs.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Queues, limits and plugins (TOML).",
)
@spoken_edition(", as the key edition of the configuration does")
@click.option(
    "--plugin",
    "plugins",
    shell_complete=completing.plugin,
    type=_listed(str),
    multiple=True,
    metavar="FILE,...",
    help="Load this jobtap plugin, by file or name; none loads no plugin. Several are compared, "
    "one run of each with each policy.",
)
@click.option(
    "--users",
    type=_check_users,
    metavar="N|column",
    help="Submit the jobs as N made-up users, or as the users of the log.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    callback=_check_plotly,
    help="Compare the runs on a page: waiting, shares and priorities of users and banks, over "
    "time and against the first run.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write every message and event of the only run to FILE, which `flux-trio check` reads.",
)
@click.option(
    "--baseline",
    metavar="RUN",
    help="Compare against the run with this name.  [default: the first]",
)
@click.pass_context
def simulate(
    ctx: click.Context,
    *,
    workload: Path,
    nodes: int,
    cores: int,
    gpus: int,
    policies: tuple[Any, ...],
    seed: int,
    depth: Depth | None,
    as_json: bool,
    limit: int | None,
    config: Path | None,
    edition: str | None,
    plugins: tuple[tuple[str, ...], ...],
    users: str | None,
    report: Path | None,
    trace: Path | None,
    baseline: str | None,
) -> None:
    """Run the jobs of a log on a simulated machine, in simulated time, and print the figures.

    WORKLOAD is in the Standard Workload Format, or has the columns JobID, NNodes, NCPUS, Timelimit,
    Submit and Elapsed, separated by commas or |, as Slurm's sacct writes them. It may be compressed
    by gzip. The columns User and Account are read if they are there. If NCPUS is 0 in every row, a
    job has all cores of its NNodes nodes. Jobs that the log does not know enough of are left out,
    which is said. The services are those of a real instance; only the processes are simulated. The
    same seed gives the same run. The first warnings and errors of its log go to standard error.

    Two logs come along: lassen-busy.csv has 200 jobs of a busy day, for 128 nodes of 40 cores, and
    lassen-100.csv the first 100 jobs of a machine.

    The conf of a plugin comes from the directive in the configuration that loads it. If one of
    several runs fails, the others go on, and the page names it.

    Exit codes: 0, 1 if the workload cannot be read, a run fails, some jobs never end or a file
    cannot be written, 2 for wrong usage.
    """
    from flux_trio.cli.judge.traces import written_trace
    from flux_trio.cli.lab.simulating import NO_RESULT, Problems, plan, read_config_file, read_jobs
    from flux_trio.cli.terminal.errors import complain, remark
    from flux_trio.jobtap import OwnProcess, ending_with_plugins
    from flux_trio.process.groups import unwrapping
    from flux_trio.sim import make_machine
    from flux_trio.sim import simulate as run

    _check_machine(nodes, cores, gpus)
    configured = read_config_file(config, edition)
    jobs = read_jobs(workload, limit, users, seed, cores)
    compared = [each for some in plugins for each in some]
    planned = list(plan(configured, compared, policies))
    names = [each.name for each in planned]
    if baseline is not None and baseline not in names:
        raise click.UsageError(f"--baseline: expected one of {', '.join(names)}: got {baseline}")
    if trace is not None and len(planned) > 1:
        raise click.UsageError(f"--trace: expected one run, got {', '.join(names)}")
    results: dict[str, SimulationResult] = {}
    failures: dict[str, str] = {}
    incomplete: list[str] = []  # error messages about the trace
    machine = make_machine(nodes, cores, gpus)

    def end(name: str, reason: str) -> None:
        """End with the figures of the other runs: nothing ends the plugin of this one."""
        complain(_of_run(reason, name, planned))
        _print(results, seed, as_json=as_json, compared=len(planned) > 1)
        sys.stdout.flush()
        os._exit(FAILED)

    for each in sorted(planned, key=lambda each: each.name != baseline):
        problems = Problems()
        try:
            with (
                unwrapping(*NO_RESULT),
                ending_with_plugins(OwnProcess(end=partial(end, each.name))),
                _progress_bar(len(jobs), each.name) as progress,
                written_trace(trace, incomplete.append) as sinks,
            ):
                results[each.name] = run(
                    *(jobs, machine, each.policy, seed),
                    config=each.config,
                    progress=progress,
                    sinks=sinks,
                    log_sinks=[problems.write],
                    depth=depth,
                )
        except NO_RESULT as error:
            failures[each.name] = str(error)
            complain(_of_run(str(error), each.name, planned))
        else:
            for line in problems.lines():
                remark(_of_run(line, each.name, planned))
    for text in incomplete:
        complain(text)
    title = f"{workload.name} on {nodes} nodes, {', '.join(policies)}"
    if report is not None:
        options = _options(ctx, workload)
        _report(results, failures, report, title, options, machine.ncores)
    _print(results, seed, as_json=as_json, compared=len(planned) > 1)
    ctx.exit(FAILED if failures or incomplete else 0)


def _of_run(text: str, name: str, planned: Sequence[Planned]) -> str:
    """Return a text about a run; it names the run if there are several."""
    return text if len(planned) == 1 else f"{name}: {text}"


def _options(ctx: click.Context, workload: Path) -> dict[str, str]:
    """Return the options as typed or by default, but for those that say where to write."""
    from flux_trio._version import __version__

    shown = {"flux-trio": __version__, "workload": str(workload)}
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if (
            isinstance(param, click.Option)
            and param.name not in _NOT_SHOWN
            and value not in (None, ())
        ):
            name = param.opts[0]
            shown[name] = _spelled(value)
    return shown


def _spelled(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_spelled, value))
    return str(value)


def _print(
    results: Mapping[str, SimulationResult], seed: int, *, as_json: bool, compared: bool
) -> None:
    """Print the figures, if there are any; of runs that are compared, each under its name."""
    from flux_trio.cli.lab.simulating import report_json, report_lines
    from flux_trio.cli.terminal.events import json_text

    if not results:
        return
    if as_json:
        reports = {name: report_json(each, seed) for name, each in results.items()}
        click.echo(json_text(reports if compared else next(iter(reports.values()))))
        return
    for name, result in results.items():
        if compared:
            click.echo(f"{name}:")
        for line in report_lines(result):
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


def _report(
    results: Mapping[str, SimulationResult],
    failures: Mapping[str, str],
    report: Path,
    title: str,
    options: Mapping[str, str],
    ncores: int,
) -> None:
    from flux_trio.sim import served_run
    from flux_trio.views import FailedRun, comparison_page

    runs = [
        served_run(name, each.jobs, each.metrics, each.shares, ncores)
        for name, each in results.items()
    ]
    failed = [FailedRun(name, why) for name, why in failures.items()]
    write_text(report, comparison_page(title, options, runs, failed))
