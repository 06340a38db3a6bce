"""`flux-trio start`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from flux_trio.cli.errors import CommandError


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "-c",
    "--config",
    "--config-path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the instance's TOML configuration from FILE.",
)
@click.option(
    "-s",
    "--test-size",
    "targets",
    type=click.IntRange(min=1),
    metavar="N",
    help="Let this machine pose as N execution targets: resource.targets.",
)
@click.option(
    "--statedir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep jobs and their eventlogs in DIR, and go on from what is there.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write every message and event to FILE, for `flux-trio check`.",
)
@click.option(
    "--monitor",
    is_flag=True,
    help="Judge the instance while it runs: a clause that is broken is logged as an error.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def start(
    ctx: click.Context,
    *,
    config: Path | None,
    targets: int | None,
    statedir: Path | None,
    trace: Path | None,
    monitor: bool,
    command: tuple[str, ...],
) -> None:
    """Run an instance in the foreground.

    With COMMAND the instance lasts as long as the command, which finds it by FLUX_TRIO_STATEDIR in
    its environment. Without --statedir its state is then temporary, and jobs that are left are
    canceled at the end.

    In a job it has the resources of that job, and its first task is the instance: the others do
    nothing.

    Without COMMAND the instance runs until SIGINT, SIGTERM, SIGHUP or a broker.shutdown request,
    and keeps its state in the default directory unless --statedir says otherwise. Jobs that run go
    on, and the next instance of the directory finds them.

    Exit codes: that of COMMAND (128 and the number of the signal that ended it, 127 if it is not
    found, 126 if it cannot be run), else 0; 1 if the instance cannot start or go on.
    """
    from flux_trio.cli.enclosing import is_further_task, is_in_job
    from flux_trio.cli.start import ConfigSource, StartError, Startup, run, state_directory
    from flux_trio.client import default_statedir

    if is_further_task(os.environ):
        return
    temporary = command or is_in_job(os.environ)  # the default one is the enclosing instance's
    try:
        source = ConfigSource(config, targets)
        default = None if temporary else default_statedir(os.environ)
        with state_directory(statedir, default) as (directory, lasting):
            startup = Startup(source, source.read(), directory, lasting, command, trace, monitor)
            ctx.exit(run(startup))
    except StartError as error:
        raise CommandError(str(error)) from None
