"""`flux-trio watch`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from flux_trio.cli.connection.jobid_param import JOBID
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError, remark
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import count_option

if TYPE_CHECKING:
    from flux_trio.client import Client


@click.command(cls=Command)
@click.option("-a", "--active", is_flag=True, help="Watch all your active jobs.")
@click.option("-A", "--all", "all_jobs", is_flag=True, help="Watch all your jobs.")
@count_option("Watch")
@click.option(
    "-f",
    "--filter",
    "filters",
    multiple=True,
    metavar="STATE|RESULT,...",
    help="Watch jobs in these states or with these results.",
)
@click.option("--since", metavar="WHEN", help="Watch jobs that are active or ended since WHEN.")
@click.option("--progress", is_flag=True, help="Show a progress bar on a terminal.")
@click.option("--jps", is_flag=True, help="With --progress, show jobs per second.")
@click.option(
    "-l", "--label-io", is_flag=True, help="Put job and task in front of each line of output."
)
@click.option("-v", "--verbose", count=True, help="Print how jobs end; -vv prints every event.")
@click.argument("jobids", metavar="[JOBID]...", nargs=-1, type=JOBID)
def watch(
    *,
    progress: bool,
    jps: bool,
    label_io: bool,
    verbose: int,
    jobids: tuple[int, ...],
    **options: Any,
) -> None:
    """Show the output of jobs, including jobs that are over, and wait for them.

    Exit codes: the highest exit code of the jobs, 0 if no job matches; 2 for wrong usage.
    """
    from flux_trio.cli.follow.output import standard_outputs
    from flux_trio.cli.follow.watching import Watcher, progress_bar, watch_all

    fetch = _fetch(jobids, **options)

    async def show(client: Client) -> int:
        found = await fetch(client)
        if not found:
            remark("No matching jobs")
            return 0
        with progress_bar(progress, len(found), jps=jps) as bar:
            watcher = Watcher(
                client=client, output=True, label=label_io, verbose=verbose, progress=bar
            )
            outputs = standard_outputs() if bar is None else bar.outputs()
            await watch_all(watcher, found, outputs)
        return watcher.exit_code

    click.get_current_context().exit(with_client(show))


def _fetch(
    jobids: tuple[int, ...],
    *,
    active: bool,
    all_jobs: bool,
    count: int,
    filters: tuple[str, ...],
    since: str | None,
) -> Any:
    """Return a function that fetches the ids of the jobs. Raises CommandError."""
    from flux_trio.cli.connection.job_query import JobQuery, read_filter
    from flux_trio.cli.terminal.values import read_time

    if active:
        filters = (*filters, "active")
    if all_jobs or (since is not None and not filters):
        filters = (*filters, "active", "inactive")
    if not filters and not jobids:
        raise CommandError("At least one job selection option is required")
    try:
        ended = 0.0 if since is None else read_time(since, time.time())
        states, results = read_filter(filters) if filters else (0, 0)
    except ValueError as error:
        raise CommandError(str(error)) from None
    query = JobQuery(states=states, results=results, count=count, userid=None, since=ended)

    async def fetch(client: Client) -> list[int]:
        if jobids:
            return list(jobids)
        found = await query.fetch(client)
        return [job["id"] for job in found[: count or None]]

    return fetch
