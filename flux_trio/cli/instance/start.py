"""`flux-trio start`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from flux_trio.cli.terminal.errors import remark
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import POLICY, spoken_edition

if TYPE_CHECKING:
    from flux_trio.shell.begun import BegunHost

LEVELS: Final = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")


# the options that `shell` has, too
CONFIG = click.option(
    "-c",
    "--config",
    "--config-path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the instance's TOML configuration from FILE.",
)
TARGETS = click.option(
    "-s",
    "--test-size",
    "targets",
    type=click.IntRange(min=1),
    metavar="N",
    help="Let this machine act as N execution targets, as resource.targets does.",
)
STATEDIR = click.option(
    "--statedir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Store jobs and their eventlogs in DIR, and continue the jobs that are there.",
)


@click.command(context_settings={"allow_interspersed_args": False}, cls=Command)
@CONFIG
@TARGETS
@click.option(
    "--policy",
    type=POLICY,
    metavar="POLICY",
    help="Schedule by this policy, as sched.policy does: fifo, easy, conservative, or a class of "
    "yours, FILE.py:Class.",
)
@spoken_edition(", as the key edition does")
@STATEDIR
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write every message, event and turn to FILE, for `flux-trio check` and `replay`.",
)
@click.option(
    "--trace-environments",
    is_flag=True,
    help="With --trace, write the environments of jobs to FILE, too; they may have secrets.",
)
@click.option(
    "--monitor",
    is_flag=True,
    help="Judge the instance while it runs, and log each broken clause as an error.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Write the log to standard error as text, or as a JSON object for each entry. "
    "[default: text, or the fields of the journal if standard error is systemd's journal]",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    metavar="LEVEL",
    help="Write log entries of LEVEL or worse: emerg, alert, crit, err, warning, notice, info or "
    "debug. [default: err, or info in the journal]",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def start(
    ctx: click.Context,
    *,
    config: Path | None,
    targets: int | None,
    policy: str | None,
    edition: str | None,
    statedir: Path | None,
    trace: Path | None,
    trace_environments: bool,
    monitor: bool,
    log_format: str | None,
    log_level: str | None,
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

    Under a service manager (NOTIFY_SOCKET is set) SIGHUP reads the configuration file again, and
    the manager is told when the instance is ready, reloads and ends.

    A directory is named by --statedir, or by FLUX_TRIO_STATEDIR if you have set it yourself: inside
    a job, and inside COMMAND, it names the instance that is there.

    What the end waits for is named on standard error after a second; a second signal ends the
    process at once. Nothing that was acknowledged is lost.

    Inside a job the instance has the resources of that job. The first task of the job runs the
    instance; the other tasks wait for its end.

    Exit codes: with COMMAND its exit code (128 plus the number of the signal that ended it, 127 if
    it is not found, 126 if it cannot be run), else 0; 1 if the instance cannot start or go on.
    """
    from flux_trio.cli.instance.starting import (
        shell_of_terminal,
        sign_of_start,
        state_directory,
        statedir_of_user,
    )
    from flux_trio.cli.instance.together import release_further_tasks, wait_for_first_task
    from flux_trio.client import default_statedir, is_further_task, is_in_job

    if is_further_task(os.environ):
        wait_for_first_task(os.environ)
        return
    if not command and (command := shell_of_terminal(os.environ)):
        remark("the instance ends when you leave this shell")
    in_job = is_in_job(os.environ)
    named = statedir or (None if in_job else statedir_of_user(os.environ))
    # the default directory is that of the enclosing instance
    default = None if command or in_job else default_statedir(os.environ)
    with ExitStack() as opened:
        if in_job:
            opened.callback(release_further_tasks, os.environ)
        directory, lasting = opened.enter_context(state_directory(named, default))
        if (host := _begin_shell_host(directory)) is not None:
            opened.callback(host.drop)
        started = opened.enter_context(sign_of_start(directory))

        from flux_trio.cli.instance.ending import Ending
        from flux_trio.cli.instance.foreground import ConfigSource, Startup, run
        from flux_trio.cli.instance.log_output import LogFormat, LogOptions
        from flux_trio.cli.instance.service_manager import service_manager
        from flux_trio.messages import Level
        from flux_trio.store.state_directory import HELD_FILE

        source = ConfigSource(config, targets, policy, edition)
        startup = Startup(
            source=source,
            config=source.read(),
            statedir=directory,
            lasting=lasting,
            command=command,
            trace=trace,
            trace_environments=trace_environments,
            monitor=monitor,
            log=LogOptions(
                LogFormat(log_format) if log_format else None,
                Level[log_level.upper()] if log_level else None,
            ),
            manager=service_manager(os.environ),
            started=started,
            opened=opened,
            ending=Ending(opened.close, directory / HELD_FILE),
        )
        ctx.exit(run(startup))


def _begin_shell_host(statedir: Path) -> BegunHost | None:
    """Let the process that an instance waits for last import while this one does."""
    from flux_trio.shell.begun import BegunHost, begun_host
    from flux_trio.shell.protocol import SHELL_DIRECTORY

    try:
        host = BegunHost(statedir / SHELL_DIRECTORY)
    except OSError:  # no process or descriptor is free: the launch says so, if it is needed
        return None
    begun_host.set(host)
    return host
