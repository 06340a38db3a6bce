"""`flux-trio cancel`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from flux_trio.cli.errors import CommandError, complain, remark
from flux_trio.cli.params import JOBID, USER_OR_ALL
from flux_trio.cli.session import with_client

if TYPE_CHECKING:
    from flux_trio.client import Client


@click.command()
@click.option("--all", "all_jobs", is_flag=True, help="Cancel all active jobs of one user.")
@click.option("-m", "--message", default="", metavar="NOTE", help="Say why.")
@click.option(
    "-u",
    "--user",
    type=USER_OR_ALL,
    metavar="USER",
    help="Whose jobs, or `all` (implies --all). [default: yours]",
)
@click.argument("jobids", metavar="JOBID...", nargs=-1, type=JOBID)
@click.pass_context
def cancel(
    ctx: click.Context, all_jobs: bool, message: str, user: int | None, jobids: tuple[int, ...]
) -> None:
    """Cancel jobs: the ones that are named, or all.

    Jobs that run are sent SIGTERM, and SIGKILL after the configured kill-timeout.

    Exit codes: 0 if all were canceled, 1 if one was not, 2 for wrong usage.
    """
    all_jobs = all_jobs or user is not None
    if jobids and all_jobs:
        raise CommandError("Do not specify a list of jobids with --all,--user options")
    if all_jobs:
        with_client(lambda client: _cancel_all(client, user, message))
    elif not jobids:
        raise CommandError("No target jobs were provided")
    elif with_client(lambda client: _cancel_each(client, jobids, message)):
        ctx.exit(1)


async def _cancel_each(client: Client, jobids: tuple[int, ...], message: str) -> int:
    """Cancel the jobs; how many were not."""
    from flux_trio.formats import format_fluid
    from flux_trio.messages import FluxError, topics

    errors = 0
    for jobid in jobids:
        payload = {"id": jobid, "severity": 0, "type": "cancel", "note": message}
        try:
            await client.call(topics.JOB_RAISE, payload)
        except FluxError as error:
            errors += 1
            complain(f"{format_fluid(jobid, 'f58')}: {error}")
    return errors


async def _cancel_all(client: Client, user: int | None, message: str) -> None:
    from flux_trio.messages import topics
    from flux_trio.protocols import ACTIVE

    payload = {
        "userid": os.getuid() if user is None else user,
        "states": int(ACTIVE),
        "severity": 0,
        "type": "cancel",
        "note": message,
    }
    answer = await client.call(topics.JOB_RAISEALL, payload)
    count, errors = answer["count"], answer["errors"]
    if not count:
        remark("Matched 0 jobs")
    else:
        remark(f"Canceled {count} {_plural('job', count)} ({errors} {_plural('error', errors)})")


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
