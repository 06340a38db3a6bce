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
    help="Let this machine act as N execution targets, as resource.targets does.",
)
@click.option(
    "--statedir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Store jobs and their eventlogs in DIR, and continue the jobs that are there.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write every message and event to FILE, which `flux-trio check` reads.",
)
@click.option(
    "--monitor",
    is_flag=True,
    help="Judge the instance while it runs, and log each broken clause as an error.",
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

    With COMMAND the instance runs until the command ends. The command finds the instance by
    FLUX_TRIO_STATEDIR in its environment. Without --statedir the state is then temporary, and jobs
    that are still active when the command ends are canceled.

    Inside a job the instance has the resources of that job. The first task of the job runs the
    instance; the other tasks do nothing.

    Without COMMAND the instance runs until SIGINT, SIGTERM, SIGHUP or a broker.shutdown request. It
    stores its state in --statedir, or else in the default directory. Running jobs go on, and the
    next instance with the same directory takes them over.

    Exit codes: with COMMAND its exit code (128 plus the number of the signal that ended it, 127 if
    it is not found, 126 if it cannot be run), else 0; 1 if the instance cannot start or go on.
    """
    from flux_trio.cli.enclosing import is_further_task, is_in_job
    from flux_trio.cli.start import ConfigSource, StartError, Startup, run, state_directory
    from flux_trio.client import default_statedir

    if is_further_task(os.environ):
        return
    temporary = command or is_in_job(
        os.environ
    )  # the default directory is the enclosing instance's
    try:
        source = ConfigSource(config, targets)
        default = None if temporary else default_statedir(os.environ)
        with state_directory(statedir, default) as (directory, lasting):
            startup = Startup(source, source.read(), directory, lasting, command, trace, monitor)
            ctx.exit(run(startup))
    except StartError as error:
        raise CommandError(str(error)) from None
