"""`flux-trio job purge`: remove finished jobs for good."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import click

from flux_trio.cli.connection.jobid_param import JOBID
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import DURATION

if TYPE_CHECKING:
    from flux_trio.client import Client

BATCH: Final = 50  # jobs per request, as in flux


@click.command(cls=Command)
@click.option(
    "--age-limit", type=DURATION, metavar="FSD", help="Purge jobs that ended longer than FSD ago."
)
@click.option(
    "--num-limit",
    type=click.IntRange(min=0),
    metavar="COUNT",
    help="Purge the jobs that ended first until COUNT are left.",
)
@click.option("-f", "--force", is_flag=True, help="Do it; without -f, only count.")
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=BATCH,
    show_default=True,
    metavar="COUNT",
    help="Purge at most COUNT jobs with one request.",
)
@click.argument("jobids", metavar="[JOBID]...", nargs=-1, type=JOBID)
def purge(
    *,
    age_limit: float | None,
    num_limit: int | None,
    force: bool,
    batch: int,
    jobids: tuple[int, ...],
) -> None:
    """Remove everything that is stored of finished jobs, including their output.

    Without JOBID, the limits select the jobs; without a limit no job is purged. Active jobs are
    never purged. Only the instance owner may purge jobs.

    Exit codes: 0, 1 if it was refused, 2 for wrong usage.
    """
    if jobids and (age_limit is not None or num_limit is not None):
        raise click.UsageError("job ids and limits exclude one another")
    limits = {
        "age_limit": -1 if age_limit is None or math.isinf(age_limit) else age_limit,
        "num_limit": -1 if num_limit is None else num_limit,
        "batch": batch,
        "force": force,
    }

    async def run(client: Client) -> tuple[int, int]:
        from flux_trio.messages import topics

        if jobids:
            count = await _purge_named(client, jobids, force=force)
        else:
            count = await _purge(client, limits)
        stats = await client.call(topics.JOB_STATS)
        return count, stats["inactive_jobs"]

    count, inactive = with_client(run)
    if force:
        click.echo(f"purged {count} inactive jobs, {inactive} remaining")
    else:
        click.echo(f"use --force to purge {count} of {inactive} inactive jobs")


async def _purge(client: Client, limits: dict[str, Any]) -> int:
    """Purge batch after batch, and return how many jobs were purged."""
    from flux_trio.messages import topics

    total = 0
    while True:
        count: int = (await client.call(topics.JOB_PURGE, limits))["count"]
        total += count
        if not limits["force"] or count < limits["batch"]:
            return total


async def _purge_named(client: Client, jobids: tuple[int, ...], *, force: bool) -> int:
    """Purge these jobs and return their number. Stops at the first refusal (CommandError)."""
    from flux_trio.cli.connection.call_each import about
    from flux_trio.messages import topics

    total = 0
    for jobid in jobids:
        with about(jobid):
            answer = await client.call(topics.JOB_PURGE_ID, {"id": jobid, "force": force})
        total += answer["count"]
    return total
