"""`flux-trio jobs`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from flux_trio.cli.color import color_option
from flux_trio.cli.errors import CommandError, remark
from flux_trio.cli.params import JOBID, USER_OR_ALL
from flux_trio.cli.session import with_client

if TYPE_CHECKING:
    from flux_trio.cli.job_query import JobQuery
    from flux_trio.client import Client

_STYLES: Final[dict[str, dict[str, Any]]] = {
    "COMPLETED": {"fg": "green", "bold": True},
    "FAILED": {"fg": "red", "bold": True},
    "CANCELED": {"fg": "white"},
    "TIMEOUT": {"fg": "red", "bold": True},
}


@click.command()
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
@click.option(
    "-c",
    "--count",
    type=click.IntRange(min=0),
    default=1000,
    metavar="N",
    show_default=True,
    help="List N jobs at most, 0 is all.",
)
@click.option(
    "--since",
    metavar="WHEN",
    help="Of inactive jobs, list those that ended since then: -6h, yesterday, 2026-11-21T15:30. "
    "Implies -a without -f.",
)
@click.option(
    "-u", "--user", type=USER_OR_ALL, metavar="USER", help="Whose jobs, or `all`. [default: yours]"
)
@click.option("--name", default="", metavar="NAME", help="List jobs of this name.")
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME,...",
    help="List jobs of these queues. [default: all]",
)
@click.option(
    "-i",
    "--include",
    default="",
    metavar="RANKS|HOSTS",
    help="List jobs that run, or ran, there. Implies -A without -u.",
)
@click.option("-n", "--suppress-header", "--no-header", is_flag=True, help="Print no header.")
@click.option(
    "-o",
    "--format",
    "layout",
    metavar="NAME|FORMAT",
    help="A Python format of job fields, or the name of one; help lists them.",
)
@click.option(
    "-w", "--width", type=click.IntRange(min=1), metavar="N", help="Cut lines to N characters."
)
@click.option("--sort", "order", metavar="[-]FIELD,...", help="Sort by fields; - is descending.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@color_option()
@click.option("--stats", is_flag=True, help="Count the jobs of the instance before the list.")
@click.option(
    "--stats-only", is_flag=True, help="Only count; exit code 1 if no job is active any more."
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
    jobids: tuple[int, ...],
    **filters: Any,
) -> None:
    """List jobs: yours that are pending or running, or those that are named.

    The fields of a FORMAT are those of flux-jobs(1): {id.f58}, {name}, {status}, {runtime!F},
    {nodelist}, {annotations.sched.t_estimate} and so on, with widths such as {name:<10.10+}. With
    sort:FIELD,... in front of it, the list is sorted.

    Exit codes: 0, 1 if none of the named jobs is known or the list cannot be made, 2 for wrong
    usage.
    """
    from flux_trio.cli.columns import Layout, read_sort_keys, sort_rows
    from flux_trio.cli.job_query import fetch_named
    from flux_trio.cli.job_rows import FORMATS, HEADINGS, JobRow
    from flux_trio.cli.named_formats import choose_format

    if as_json and (stats or stats_only):
        raise CommandError("--json incompatible with --stats or --stats-only")
    if stats or stats_only:
        active = _show_stats()
        if stats_only:
            click.get_current_context().exit(0 if active else 1)
    try:
        columns = Layout(choose_format(layout, "flux-jobs", FORMATS), HEADINGS)
        keys = columns.sort_keys if order is None else read_sort_keys(order, HEADINGS)
        query = _query(**filters)
    except ValueError as error:
        raise CommandError(str(error)) from None

    async def fetch(client: Client) -> tuple[list[dict[str, Any]], str]:
        found = await (fetch_named(client, jobids) if jobids else query.fetch(client))
        return found, await _hindrance(client, found)

    records, hindered = with_client(fetch)
    truncated = 0 < query.count < len(records) and not jobids
    if not jobids and query.count:
        records = records[: query.count]
    rows = [JobRow(record, time.time(), hindered) for record in records]
    sort_rows(rows, keys)
    if jobids and not rows:
        click.get_current_context().exit(1)
    if as_json:
        _print_json(rows, single=len(jobids) == 1)
        return
    header, *lines = [line[:width] for line in columns.lines(rows)]
    if not suppress_header:
        click.echo(header)
    for row, line in zip(rows, lines, strict=True):
        style = _STYLES.get(row.result(0)) if color else None
        click.echo(click.style(line, **style) if style else line, color=color)
    if truncated and not suppress_header:
        click.echo(f"warning: output truncated at {query.count} jobs.", err=True)


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
    """What the options ask for. Raises ValueError."""
    from flux_trio.cli.job_query import JobQuery, own_userid, read_filter
    from flux_trio.cli.values import read_time
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
    if user is None:
        user = USERID_UNKNOWN if all_users or include else own_userid()
    return JobQuery(
        states=states,
        results=results,
        userid=user,
        queues=tuple(name for text in queues for name in text.split(",")),
        since=ended,
        include=include,
        **others,
    )


def _show_stats() -> int:
    """Print the counts; how many jobs are active."""
    from flux_trio.messages import topics

    told = with_client(lambda client: client.call(topics.LIST_STATS))
    states = told["job_states"]
    failed = told["failed"] + told["canceled"] + told["timeout"]
    pending = states["depend"] + states["priority"] + states["sched"]
    click.echo(
        f"{states['run'] + states['cleanup']} running, {told['successful']} completed, "
        f"{failed} failed, {pending} pending, {told['inactive_purged']} inactive purged"
    )
    active: int = states["total"] - states["inactive"]
    return active


async def _hindrance(client: Client, records: list[dict[str, Any]]) -> str:
    """Why jobs that wait for resources are not being scheduled, "" when they are."""
    from flux_trio.messages import FluxError, topics
    from flux_trio.protocols import JobState

    if not any(record["state"] == JobState.SCHED for record in records):
        return ""
    try:
        status = await client.call(topics.JOB_QUEUE_STATUS)
    except FluxError as error:
        return str(error)
    return str(status.get("stop_reason") or next(iter(status.get("silent", ())), ""))


def _print_json(rows: list[Any], *, single: bool) -> None:
    import msgspec

    values = [row.to_json() for row in rows]
    click.echo(msgspec.json.encode(values[0] if single else {"jobs": values}))
