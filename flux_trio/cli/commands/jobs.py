"""`flux-trio jobs`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from flux_trio.cli.errors import CommandError, complain
from flux_trio.cli.params import JOBID, USER_OR_ALL
from flux_trio.cli.session import with_client

if TYPE_CHECKING:
    from flux_trio.client import Client

_STYLES: dict[str, dict[str, Any]] = {
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
@click.option("-n", "--suppress-header", "--no-header", is_flag=True, help="Print no header.")
@click.option(
    "-o",
    "--format",
    "layout",
    default="default",
    metavar="NAME|FORMAT",
    help="A Python format of job fields, or one of: default, long, endreason.",
)
@click.option(
    "-u", "--user", type=USER_OR_ALL, metavar="USER", help="Whose jobs, or `all`. [default: yours]"
)
@click.option("--name", default="", metavar="NAME", help="List jobs of this name.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("jobids", metavar="[JOBID]...", nargs=-1, type=JOBID)
@click.pass_context
def jobs(
    ctx: click.Context,
    *,
    all_states: bool,
    all_users: bool,
    filters: tuple[str, ...],
    count: int,
    suppress_header: bool,
    layout: str,
    user: int | None,
    name: str,
    as_json: bool,
    jobids: tuple[int, ...],
) -> None:
    """List jobs: yours that are pending or running, or those that are named.

    The fields of a FORMAT are those of flux-jobs(1): {id.f58}, {name}, {status}, {runtime!F},
    {nodelist}, {annotations.sched.t_estimate} and so on, with widths such as {name:<10.10+}.

    Exit codes: 0, 1 if none of the named jobs is known or the list cannot be made, 2 for wrong
    usage.
    """
    from flux_trio.cli.columns import Layout
    from flux_trio.cli.job_rows import FORMATS, HEADINGS, JobRow, read_filter

    try:
        columns = Layout(FORMATS.get(layout, layout), HEADINGS)
        states, results = read_filter(filters or _default_filter(all_states))
    except ValueError as error:
        raise CommandError(str(error)) from None

    async def fetch(client: Client) -> tuple[list[dict[str, Any]], str]:
        if jobids:
            found = await _named_jobs(client, jobids)
        else:
            userid = _wanted_user(all_users, user)
            found = await _listed_jobs(client, states, results, count, userid, name)
        return found, await _hindrance(client, found)

    records, hindered = with_client(fetch)
    truncated = 0 < count < len(records) and not jobids
    rows = [JobRow(record, time.time(), hindered) for record in records[: count or None]]
    if jobids and not rows:
        ctx.exit(1)
    if as_json:
        _print_json(rows, single=len(jobids) == 1)
        return
    lines = columns.lines(rows)
    header = next(lines)
    if not suppress_header:
        click.echo(header)
    for row, line in zip(rows, lines, strict=True):
        style = _STYLES.get(row.result(0))
        click.echo(click.style(line, **style) if style else line)
    if truncated and not suppress_header:
        click.echo(f"warning: output truncated at {count} jobs.", err=True)


def _default_filter(all_states: bool) -> tuple[str, ...]:
    return ("active", "inactive") if all_states else ("active",)


def _wanted_user(all_users: bool, user: int | None) -> int:
    from flux_trio.messages import USERID_UNKNOWN

    if all_users:
        return USERID_UNKNOWN
    return os.getuid() if user is None else user


async def _named_jobs(client: Client, jobids: tuple[int, ...]) -> list[dict[str, Any]]:
    from flux_trio.formats import format_fluid
    from flux_trio.messages import FluxError, topics

    found = []
    for jobid in jobids:
        try:
            found.append((await client.call(topics.LIST_ID, {"id": jobid}))["job"])
        except FluxError as error:
            complain(f"{format_fluid(jobid, 'f58')}: {error}")
    return found


async def _listed_jobs(
    client: Client, states: int, results: int, count: int, userid: int, name: str
) -> list[dict[str, Any]]:
    """The jobs that are asked for, and one more than `count` if there are more."""
    from flux_trio.messages import topics
    from flux_trio.protocols import JobState

    only_results = results and not states & JobState.INACTIVE
    payload = {
        "max_entries": 0 if only_results or not count else count + 1,
        "states": int(states | (JobState.INACTIVE if results else 0)),
        "userid": userid,
        "name": name,
    }
    found: list[dict[str, Any]] = (await client.call(topics.LIST_LIST, payload))["jobs"]
    if only_results:
        found = [job for job in found if job.get("result", results) & results]
    return found


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
