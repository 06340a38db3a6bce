"""`flux-trio jobs`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from flux_trio.cli.connection import completing
from flux_trio.cli.connection.jobid_param import JOBID
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError, remark
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import USER_OR_ALL, color_option, count_option, format_option

if TYPE_CHECKING:
    from flux_trio.cli.connection.job_query import JobQuery
    from flux_trio.client import Client

LEVEL_MAX: Final = 9999  # levels of nested instances, as in flux


@click.command(cls=Command)
@click.option("-a", "all_states", is_flag=True, help="List jobs in all states.")
@click.option("-A", "all_users", is_flag=True, help="List the jobs of all users.")
@click.option(
    "-f",
    "--filter",
    "filters",
    multiple=True,
    metavar="STATE|RESULT,...",
    help="List jobs in these states or with these results. [default: pending,running]",
)
@count_option("List")
@click.option(
    "--since",
    metavar="WHEN",
    help="List inactive jobs only if they ended since WHEN: -6h, yesterday, 2026-11-21T15:30, "
    "or seconds since 1970. Implies -a without -f.",
)
@click.option(
    "-u",
    "--user",
    type=USER_OR_ALL,
    metavar="USER",
    help="List the jobs of USER, or of `all` users. [default: you]",
)
@click.option("--name", default="", metavar="NAME", help="List jobs with this name.")
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME,...|all",
    shell_complete=completing.queues,
    help="List jobs of these queues. [default: the default queue, if there is one]",
)
@click.option(
    "-i",
    "--include",
    default="",
    metavar="RANKS|HOSTS",
    shell_complete=completing.hosts,
    help="List jobs that run or ran on these nodes. Implies -A without -u.",
)
@click.option("-n", "--suppress-header", "--no-header", is_flag=True, help="Print no header.")
@format_option("job fields")
@click.option(
    "-w", "--width", type=click.IntRange(min=1), metavar="N", help="Cut lines to N characters."
)
@click.option(
    "--sort", "order", metavar="[-]FIELD,...", help="Sort by fields; - sorts in descending order."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@color_option()
@click.option("--stats", is_flag=True, help="Print counts of jobs before the list.")
@click.option(
    "--stats-only", is_flag=True, help="Print only counts; exit code 1 if no job is active."
)
@click.option(
    "-R", "--recursive", is_flag=True, help="Also list the jobs of instances that run in jobs."
)
@click.option(
    "-L",
    "--level",
    type=click.IntRange(min=0),
    metavar="N",
    help="With -R, descend at most N levels.",
)
@click.option(
    "--recurse-all", is_flag=True, help="As -R, and also descend into jobs of other users."
)
@click.argument("jobids", metavar="[JOBID]...", nargs=-1, type=JOBID)
def jobs(
    *,
    suppress_header: bool,
    layout: str | None,
    width: int | None,
    order: str | None,
    as_json: bool,
    color: bool,
    stats: bool,
    stats_only: bool,
    recursive: bool,
    level: int | None,
    recurse_all: bool,
    jobids: tuple[int, ...],
    **filters: Any,
) -> None:
    """List your pending and running jobs, or the jobs with these ids.

    The fields of a FORMAT are those of flux-jobs(1): {id.f58}, {name}, {status}, {runtime!F},
    {nodelist}, {annotations.sched.t_estimate} and so on, with widths such as {name:<10.10+}. The
    prefix sort:FIELD,... sorts the list. {explain} says why a job waits, as flux-trio job explain
    does; each job is asked about, which takes time.

    Exit codes: 0, 1 if no JOBID is known or the list cannot be made, 2 for wrong usage.
    """
    from flux_trio.cli.connection.job_query import fetch_named, userid_or_own
    from flux_trio.cli.jobs.job_rows import FIELDS, FORMATS
    from flux_trio.cli.jobs.jobs_page import JobsPage, counts_text, print_json
    from flux_trio.cli.jobs.nested import Recursion
    from flux_trio.cli.terminal.columns import read_sort_keys
    from flux_trio.cli.terminal.named_formats import choose_layout

    if as_json and (stats or stats_only):
        raise CommandError("--json incompatible with --stats or --stats-only")
    if stats or stats_only:
        active = _show_stats()
        if stats_only:
            click.get_current_context().exit(0 if active else 1)
    columns = choose_layout(layout, "flux-jobs", FORMATS, FIELDS)
    keys = columns.sort_keys if order is None else read_sort_keys(order, FIELDS)
    try:
        query = _query(**filters)
    except ValueError as error:
        raise CommandError(str(error)) from None

    async def fetch(client: Client) -> tuple[list[dict[str, Any]], dict[str | None, str], int, int]:
        is_own = query.userid is None and not jobids
        own = await userid_or_own(client, None) if is_own or recursive else 0
        wanted = query.of(own)
        found = await (fetch_named(client, jobids) if jobids else wanted.fetch(client))
        await _explain(client, found, {*columns.fields, *keys})
        elsewhere = await wanted.count_elsewhere(client, jobids, found)
        return found, await _hindrances(client, found), elsewhere, own

    records, hindered, elsewhere, own = with_client(fetch)
    truncated = 0 < query.count < len(records) and not jobids
    if not jobids and query.count:
        records = records[: query.count]
    if jobids and not records:
        click.get_current_context().exit(1)
    page = JobsPage(columns, keys, width, color)
    rows = page.rows(records, hindered)
    depth = LEVEL_MAX if level is None else level
    recursion = Recursion(
        query,
        depth if recursive or recurse_all else 0,
        own=None if recurse_all else own,
        stats=_stats if stats else None,
    )
    if as_json:
        print_json(rows, recursion, single=len(jobids) == 1)
        return
    page.print(rows, header=not suppress_header)
    page = page.fitted(rows)
    for nested in recursion.descend(row.record for row in rows):
        click.echo("\n{}:".format("/".join(nested.path)))
        if nested.stats is not None:
            click.echo(counts_text(nested.stats))
        page.print(page.rows(nested.records))
    _remark_elsewhere(0 if suppress_header else elsewhere)
    if truncated and not suppress_header:
        click.echo(f"warning: output truncated at {query.count} jobs.", err=True)


def _remark_elsewhere(count: int) -> None:
    if count:
        number = "1 more job is" if count == 1 else f"{count} more jobs are"
        remark(f"{number} in other queues: -q all lists them")


def _query(
    *,
    all_states: bool,
    all_users: bool,
    filters: tuple[str, ...],
    queues: tuple[str, ...],
    since: str | None,
    user: int | None,
    include: str,
    **others: Any,
) -> JobQuery:
    """Build the query from the options. Raises ValueError."""
    from flux_trio.cli.connection.job_query import JobQuery, read_filter
    from flux_trio.cli.terminal.values import read_time
    from flux_trio.messages import USERID_UNKNOWN

    now = time.time()
    ended = 0.0 if since is None else read_time(since, now)
    if ended > now:
        raise ValueError(f"--since={since} appears to be in the future")
    if all_states and filters:
        remark("Both -a and --filter specified, ignoring -a")
    everything = all_states or since is not None
    names = filters or (("active", "inactive") if everything else ("active",))
    states, results = read_filter(names)
    if user is None and (all_users or include):
        user = USERID_UNKNOWN
    return JobQuery(
        states=states,
        results=results,
        userid=user,
        queues=_queue_names(queues),
        since=ended,
        include=include,
        **others,
    )


def _queue_names(options: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names; None means the default queue, an empty tuple all queues."""
    names = tuple(name for text in options for name in text.split(","))
    return None if not names else () if "all" in names else names


def _show_stats() -> int:
    """Print the counts, and return how many jobs are active."""
    from flux_trio.cli.jobs.jobs_page import counts_text

    stats = with_client(_stats)
    click.echo(f"{counts_text(stats)}, {stats['inactive_purged']} inactive purged")
    states = stats["job_states"]
    active: int = states["total"] - states["inactive"]
    return active


async def _stats(client: Client) -> dict[str, Any]:
    from flux_trio.messages import topics

    return await client.call(topics.LIST_STATS)


async def _explain(client: Client, records: list[dict[str, Any]], fields: set[str]) -> None:
    """Ask why each job waits, if the list shows it."""
    from flux_trio.cli.jobs.explanation import add_explanations

    if "explain" in fields:
        await add_explanations(client, records, time.time())


async def _hindrances(client: Client, records: list[dict[str, Any]]) -> dict[str | None, str]:
    """Return for each queue why its jobs in SCHED are not being scheduled, "" if they are."""
    from flux_trio.messages import FluxError, topics
    from flux_trio.protocols import JobState

    hindered = {}
    waiting = (record for record in records if record["state"] == JobState.SCHED)
    for name in dict.fromkeys(record.get("queue") for record in waiting):
        try:
            status = await client.call(topics.JOB_QUEUE_STATUS, {"name": name})
        except FluxError as error:
            hindered[name] = str(error)
        else:
            hindered[name] = _reason_in(status)
    return hindered


def _reason_in(status: dict[str, Any]) -> str:
    """Return why a queue schedules no jobs, from its queue-status response; "" if it does."""
    stopped = "" if status["start"] else status.get("stop_reason") or "queue is stopped"
    return str(stopped or next(iter(status.get("silent", ())), ""))
