"""`flux-trio fuzz`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flux_trio.cli.lab.fuzz_params import (
    DEPTHS,
    PROPERTY_OPTION,
    STORES,
    Seeds,
    check_directory,
    check_file,
    check_plugin_file,
    load_executor,
    read_budget,
    read_plugin_config,
    read_seeds,
)
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import POLICY, spoken_edition

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from flux_trio.lab import PluginFile
    from flux_trio.lab.plans.plan import Depth, Edition
    from flux_trio.lab.world.disk import StoreKind

BROKEN = 1
INCOMPLETE = 2
INTERRUPTED = 3

_DEFAULT = Seeds(0, 300)


@click.command(cls=Command)
@click.option(
    "--seeds",
    type=read_seeds,
    metavar="A:B",
    help="Play the seeds from A up to B, without B; A: is all seeds from A.  [default: 0:300, or "
    "0: with a time budget]",
)
@click.option(
    "--time-budget",
    type=read_budget,
    metavar="DURATION",
    help="Begin no more seeds after DURATION, which is more than 0. The first one is always "
    "played.",
)
@click.option(
    "--depth",
    type=click.Choice(DEPTHS),
    default="cores",
    show_default=True,
    is_eager=True,  # --plugin depends on it
    help="Play the cores of all modules without Trio, or the whole stack in virtual time: "
    "services, broker, plugins and store.",
)
@click.option(
    "--store",
    type=click.Choice(STORES),
    default="memory",
    show_default=True,
    help="Keep the values of the kvs in memory, or in a file of SQLite.",
)
@spoken_edition(" in every world")
@PROPERTY_OPTION
@click.option(
    "--policy",
    type=POLICY,
    metavar="POLICY",
    help="Schedule by this policy in every world: fifo, easy, conservative, or a class of yours, "
    "FILE.py:Class. [default: drawn by the seed]",
)
@click.option(
    "--plugin",
    "plugins",
    type=check_plugin_file,
    multiple=True,
    metavar="FILE",
    help="Load this jobtap plugin: its handlers must not fail, and its counters must equal a "
    "recount. Async handlers need --depth stack. May be given several times.",
)
@click.option(
    "--config",
    "configured",
    type=read_plugin_config,
    metavar="FILE",
    help="Load the plugins of this configuration (TOML) with their conf, in front of those of "
    "--plugin. The rest of it is not used.",
)
@click.option(
    "--keep-going",
    is_flag=True,
    help="Go on after a seed that breaks a property, or in which a property raises.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Play on N processes.  [default: one for each processor]",
)
@click.option(
    "--executor",
    type=load_executor,
    metavar="MODULE:CALLABLE",
    help="Play on the concurrent.futures.Executor that the callable returns, such as a Dask "
    "cluster's; it has N workers.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    callback=check_directory,
    default=Path("fuzz-found"),
    show_default=True,
    metavar="DIR",
    help="Write the story of each broken property into DIR/seed-N, in place of an earlier one of "
    "that seed. Other stories in DIR stay.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, readable=False, writable=True, path_type=Path),
    callback=check_file,
    metavar="FILE",
    help="Write a test case for each seed to FILE, as JUnit XML.",
)
@click.pass_context
def fuzz(
    ctx: click.Context,
    *,
    seeds: Seeds | None,
    time_budget: float | None,
    depth: Depth,
    store: StoreKind,
    edition: Edition | None,
    properties: tuple[str, ...],
    policy: str | None,
    plugins: tuple[str, ...],
    configured: Sequence[PluginFile] | None,
    keep_going: bool,
    workers: int | None,
    executor: Callable[[], Executor] | None,
    output: Path,
    as_json: bool,
    junit: Path | None,
) -> None:
    """Play worlds with faults, one from each seed, and judge them.

    A world has all modules in virtual time, without processes. Its seed draws the
    jobs, the requests, the faults and the order of events. Each clause of the RFCs must hold, and
    everything must come to rest after the faults.

    The first seed that breaks a property ends the run. It is made small, and its story is written:
    plan.toml for `flux-trio replay`, story.txt, story.html, and test_story.py, which fails until
    the property holds. The smallest plan is played once more in a new process; the report and the
    story say if the property held.

    With --keep-going there is a story for each broken property, that of its first seed: to make a
    plan small takes as long as many worlds, and further seeds mostly show the same fault. The
    report names them. `--seeds N:N+1`, with numbers, writes the story of another one.

    The report ends with what was reached: transitions of the protocols' state tables that no world
    took, alone and together with each fault; and situations, such as a second page, with the number
    of worlds that drew each and that of those in which it occurred.

    Ctrl-C or SIGTERM ends the run with a report of what was played by then. A plan that is being
    made small is written as small as it is by then; a second Ctrl-C drops it.

    Exit codes: 0 if every property held, 1 if one was broken; if none was, 2 if the workers ended
    by themselves, a property raised, or the report could not be written, and 3 if a signal ended
    the run. Wrong usage, and an output that cannot be made, ends it with 2 before the first seed.
    """
    from contextlib import nullcontext

    from flux_trio.cli.lab.fuzz_report import write_report
    from flux_trio.cli.lab.fuzz_workers import new_process, processes, workers_of
    from flux_trio.cli.lab.fuzzing import progress_bar, run_campaign
    from flux_trio.cli.terminal.errors import Unusable, complain, print_text, remark
    from flux_trio.jobtap import OwnProcess, ending_with_plugins
    from flux_trio.lab import Setup
    from flux_trio.lab.plans.plan import DEFAULT_EDITION

    chosen = seeds or (_DEFAULT if time_budget is None else Seeds(0, None))
    if chosen.end is None and time_budget is None:
        raise click.UsageError(f"--seeds {chosen} has no end: --time-budget is missing")
    if as_json:
        remark(f"seeds {chosen}")
    else:
        print_text(f"seeds {chosen}", Unusable)
    nworkers = workers or len(os.sched_getaffinity(0))
    with (
        ending_with_plugins(OwnProcess()),  # in the worlds that make a plan small
        workers_of(executor or (lambda: processes(nworkers))) as pool,
        progress_bar(chosen) as advance,
    ):
        campaign = run_campaign(
            chosen,
            time_budget,
            pool,
            nworkers,
            Setup(
                properties,
                (*(configured or ()), *plugins),
                depth,
                store,
                policy,
                edition or DEFAULT_EDITION,
            ),
            once_more=new_process if executor is None else lambda: nullcontext(pool),
            keep_going=keep_going,
            output=output,
            advance=advance,
        )
    write_report(campaign, junit, as_json=as_json)
    for each in campaign.errors:
        complain(each)
    if campaign.broken:
        ctx.exit(BROKEN)
    if campaign.errors:
        ctx.exit(INCOMPLETE)
    ctx.exit(INTERRUPTED if campaign.is_interrupted else 0)
