"""`flux-trio housekeeping`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.examples import Command, Group
from flux_trio.cli.terminal.params import SIGNAL

if TYPE_CHECKING:
    from flux_trio.client import Client


@click.group(cls=Group)
def housekeeping() -> None:
    """List the housekeeping of jobs that have ended, or send it a signal.

    The command of `[job-manager.housekeeping]` runs once for each rank that a job had, before the
    rank is free for other jobs.
    """


@housekeeping.command("list", cls=Command)
def list_() -> None:
    """List the jobs whose resources housekeeping holds.

    PENDING are the ranks on which the command has not ended, HELD those that are not free yet.

    Exit codes: 0, 1 for an error, 2 for wrong usage.
    """
    from flux_trio.cli.terminal.columns import short_duration
    from flux_trio.messages import topics

    async def ask(client: Client) -> Any:
        return await client.call(topics.stats_of(topics.JOB_MANAGER))

    running = with_client(ask)["housekeeping"]["running"]
    click.echo(f"{'JOBID':>12} {'PENDING':<12} {'HELD':<12} TIME")
    for name, run in running.items():
        passed = short_duration(max(0.0, time.time() - run["t_start"]))
        click.echo(f"{name:>12} {run['pending'] or '-':<12} {run['allocated']:<12} {passed}")


@housekeeping.command(cls=Command)
@click.option(
    "-s",
    "--signal",
    "signum",
    type=SIGNAL,
    default="SIGTERM",
    show_default=True,
    metavar="SIG",
    help="Send this signal.",
)
@click.option("-t", "--targets", metavar="RANKS", help="Only on these ranks, an idset.")
@click.option("-j", "--jobid", metavar="JOBID", help="Only to that of this job.")
@click.option("--all", "everything", is_flag=True, help="To all that runs.")
def kill(*, signum: int, targets: str | None, jobid: str | None, everything: bool) -> None:
    """Send a signal to the commands of housekeeping that run.

    Exit codes: 0, 1 for an error, 2 for wrong usage.
    """
    from flux_trio.cli.terminal.errors import CommandError
    from flux_trio.formats import FormatError, parse_fluid
    from flux_trio.messages import topics

    if not (everything or targets or jobid):
        raise click.UsageError("expected --jobid, --targets or --all: got none of them")
    asked: dict[str, Any] = {"signum": signum}
    if targets is not None:
        asked["ranks"] = targets
    if jobid is not None:
        try:
            asked["jobid"] = parse_fluid(jobid)
        except FormatError as error:
            raise CommandError(str(error)) from None

    async def ask(client: Client) -> None:
        await client.call(topics.JOB_HOUSEKEEPING_KILL, asked)

    with_client(ask)
