"""`flux-trio start`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from flux_trio.cli.errors import CommandError, remark


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
    FLUX_TRIO_STATEDIR in its environment. The state is then temporary unless a directory is named,
    and jobs that are still active when the command ends are canceled.

    Without COMMAND, and with a terminal in the foreground, COMMAND is your shell ($SHELL). The
    instance ends when you leave the shell.

    Without COMMAND and terminal, or in the background, the instance runs until SIGINT, SIGTERM,
    SIGHUP or a broker.shutdown request. Its state is kept in the default directory unless another
    is named. Running jobs go on, and the next instance with the same directory takes them over.

    A directory is named by --statedir, or by FLUX_TRIO_STATEDIR if you have set it yourself: inside
    a job, and inside COMMAND, it names the instance that is there.

    Inside a job the instance has the resources of that job. The first task of the job runs the
    instance; the other tasks do nothing.

    Exit codes: with COMMAND its exit code (128 plus the number of the signal that ended it, 127 if
    it is not found, 126 if it cannot be run), else 0; 1 if the instance cannot start or go on.
    """
    from flux_trio.cli.starting import (
        StartError,
        shell_of_terminal,
        sign_of_start,
        state_directory,
        statedir_of_user,
    )
    from flux_trio.client import default_statedir, is_further_task, is_in_job

    if is_further_task(os.environ):
        return
    if not command and (command := shell_of_terminal(os.environ)):
        remark("the instance ends when you leave this shell")
    in_job = is_in_job(os.environ)
    named = statedir or (None if in_job else statedir_of_user(os.environ))
    try:
        # the default directory is that of the enclosing instance
        default = None if command or in_job else default_statedir(os.environ)
        with (
            state_directory(named, default) as (directory, lasting),
            sign_of_start(directory) as started,
        ):
            from flux_trio.cli.start import ConfigSource, Startup, run

            source = ConfigSource(config, targets)
            startup = Startup(
                source, source.read(), directory, lasting, command, trace, monitor, started
            )
            ctx.exit(run(startup))
    except StartError as error:
        raise CommandError(str(error)) from None
