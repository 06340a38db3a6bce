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
    metavar="NAME,...|all",
    help="List jobs of these queues. [default: the default queue, if there is one]",
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

    async def fetch(client: Client) -> tuple[list[dict[str, Any]], dict[str | None, str]]:
        found = await (fetch_named(client, jobids) if jobids else query.fetch(client))
        return found, await _hindrances(client, found)

    records, hindered = with_client(fetch)
    truncated = 0 < query.count < len(records) and not jobids
    if not jobids and query.count:
        records = records[: query.count]
    now = time.time()
    rows = [JobRow(record, now, hindered.get(record.get("queue"), "")) for record in records]
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
        queues=_queue_names(queues),
        since=ended,
        include=include,
        **others,
    )


def _queue_names(options: tuple[str, ...]) -> tuple[str, ...] | None:
    """None for the default queue, no names for all."""
    names = tuple(name for text in options for name in text.split(","))
    return None if not names else () if "all" in names else names


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


async def _hindrances(client: Client, records: list[dict[str, Any]]) -> dict[str | None, str]:
    """By queue: why its jobs that wait for resources are not being scheduled, "" if they are."""
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
    """Why nothing is scheduled, from a queue-status response."""
    stopped = "" if status["start"] else status.get("stop_reason") or "queue is stopped"
    return str(stopped or next(iter(status.get("silent", ())), ""))


def _print_json(rows: list[Any], *, single: bool) -> None:
    import msgspec

    values = [row.to_json() for row in rows]
    click.echo(msgspec.json.encode(values[0] if single else {"jobs": values}))
