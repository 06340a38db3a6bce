"""`flux-trio job explain`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from flux_trio.cli.connection.jobid_param import JOBID
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.shown_values import shown_id

if TYPE_CHECKING:
    from flux_trio.client import Client


@click.command(cls=Command)
@click.argument("jobids", metavar="JOBID...", nargs=-1, required=True, type=JOBID)
def explain(jobids: tuple[int, ...]) -> None:
    """Say why jobs have their priorities, why they wait, behind whom, and when they might start.

    The job manager, its plugins and the scheduler are asked now. A scheduler that cannot say why a
    job waits is named.

    Exit codes: 0, 1 if a job is unknown or cannot be asked about, 2 for wrong usage.
    """
    from flux_trio.cli.connection.job_query import fetch_named
    from flux_trio.cli.jobs.explanation import fetch_explained, lines
    from flux_trio.cli.jobs.job_rows import JobRow
    from flux_trio.messages import Errno, FluxError

    async def show_one(client: Client, jobid: int) -> bool:
        try:
            explained = await fetch_explained(client, jobid)
        except FluxError as error:
            if error.errnum != Errno.ENOENT:
                raise
            ended = await fetch_named(client, [jobid])
            for record in ended:
                reason = JobRow(record, time.time()).inactive_reason or "it has ended"
                click.echo(f"{shown_id(jobid)} is INACTIVE: {reason}")
            return bool(ended)
        for line in lines(explained, time.time()):
            click.echo(line)
        return True

    async def show_all(client: Client) -> bool:
        return all([await show_one(client, jobid) for jobid in jobids])

    if not with_client(show_all):
        click.get_current_context().exit(1)
