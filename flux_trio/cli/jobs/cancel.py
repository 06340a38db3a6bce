"""`flux-trio cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flux_trio.cli.connection.jobid_param import JOBID
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError, remark
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import STATES, USER_OR_ALL

if TYPE_CHECKING:
    from flux_trio.client import Client


@click.command(cls=Command)
@click.option("--all", "all_jobs", is_flag=True, help="Cancel all active jobs of one user.")
@click.option("-n", "--dry-run", is_flag=True, help="Only print how many jobs would be canceled.")
@click.option("-m", "--message", default="", metavar="NOTE", help="The reason.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing when no job matches.")
@click.option(
    "-S",
    "--states",
    type=STATES,
    metavar="STATE,...",
    help="Cancel jobs in these states (implies --all): depend, priority, sched, run, cleanup, "
    "pending, running, active. [default: active]",
)
@click.option(
    "-u",
    "--user",
    type=USER_OR_ALL,
    metavar="USER",
    help="Cancel the jobs of USER, or of `all` users (implies --all). [default: you]",
)
@click.argument("jobids", metavar="JOBID...", nargs=-1, type=JOBID)
@click.pass_context
def cancel(
    ctx: click.Context,
    *,
    all_jobs: bool,
    dry_run: bool,
    message: str,
    quiet: bool,
    states: int | None,
    user: int | None,
    jobids: tuple[int, ...],
) -> None:
    """Cancel the jobs with these ids, or all jobs that the options select.

    Running jobs are sent SIGTERM, and SIGKILL after the configured kill-timeout.

    Exit codes: 0 if all jobs were canceled, 1 if at least one was not, 2 for wrong usage.
    """
    all_jobs = all_jobs or user is not None or states is not None
    if jobids and all_jobs:
        text = "Do not specify a list of jobids with --all,--user,--states options"
        raise CommandError(text)
    if all_jobs:
        found = with_client(lambda client: _cancel_all(client, states, user, message, dry_run))
        _report(found["count"], found["errors"], dry_run, quiet)
    elif not jobids:
        raise CommandError("No target jobs were provided")
    elif dry_run:
        _report(len(jobids), 0, dry_run, quiet)
    else:
        ctx.exit(with_client(lambda client: _cancel_each(client, jobids, message)))


def _report(count: int, errors: int, dry_run: bool, quiet: bool) -> None:
    jobs = f"{count} {_plural('job', count)}"
    if count and dry_run:
        remark(f"Would cancel {jobs}")
    elif count:
        remark(f"Canceled {jobs} ({errors} {_plural('error', errors)})")
    elif not quiet:
        remark("Matched 0 jobs")


async def _cancel_each(client: Client, jobids: tuple[int, ...], message: str) -> int:
    """Cancel the jobs and return the exit code."""
    from flux_trio.cli.connection.call_each import call_each
    from flux_trio.messages import topics

    payload = {"severity": 0, "type": "cancel", "note": message}
    return await call_each(client, topics.JOB_RAISE, jobids, payload)


async def _cancel_all(
    client: Client, states: int | None, user: int | None, message: str, dry_run: bool
) -> dict[str, Any]:
    """Return the `count` of jobs that were canceled, and of `errors`."""
    from flux_trio.cli.jobs.job_control import raise_on_all

    payload = {"dry_run": dry_run, "severity": 0, "type": "cancel", "note": message}
    return await raise_on_all(client, states, user, payload)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
