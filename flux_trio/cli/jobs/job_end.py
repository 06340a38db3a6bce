"""`flux-trio job`: results and counts of jobs: wait, status, last, timeleft, stats."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from flux_trio.cli.connection.jobid_param import JOBID
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError, remark
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.shown_values import shown_id

if TYPE_CHECKING:
    from flux_trio.client import Client

NOT_WAITABLE: Final = 2  # exit code
FOREVER_S: Final = (1 << 32) - 1  # printed for a job without a time limit, as flux does


@click.command(cls=Command)
@click.option("-a", "--all", "all_jobs", is_flag=True, help="Wait for all waitable jobs.")
@click.option("-v", "--verbose", is_flag=True, help="Also name the jobs that succeeded.")
@click.argument("jobid", metavar="[JOBID]", required=False, type=JOBID)
@click.pass_context
def wait(ctx: click.Context, all_jobs: bool, verbose: bool, jobid: int | None) -> None:
    """Wait for a job that was submitted with --flags=waitable; without JOBID, for the next one.

    The result of each job is given once. Without JOBID the id of the job is printed.

    Exit codes: 0 if the job succeeded, 1 if it failed, 2 if there is no job to wait for; with
    --all, 1 if any job failed.
    """
    if all_jobs and jobid is not None:
        raise CommandError("jobid not supported with --all")
    if all_jobs:
        ctx.exit(with_client(lambda client: _wait_for_all(client, verbose)))
    ctx.exit(with_client(lambda client: _wait(client, jobid)))


async def _wait_for_all(client: Client, verbose: bool) -> int:

    code = 0
    while (result := await _next_result(client, None)) is not None:
        name = shown_id(result["id"])
        if not result["success"]:
            click.echo(f"{name}: {_failure(result)}", err=True)
            code = 1
        elif verbose:
            click.echo(f"{name}: job completed successfully", err=True)
    return code


async def _wait(client: Client, jobid: int | None) -> int:

    result = await _next_result(client, jobid, complain=True)
    if result is None:
        return NOT_WAITABLE
    if jobid is None:
        click.echo(shown_id(result["id"]))
    if result["success"]:
        return 0
    remark(_failure(result))
    return 1


async def _next_result(
    client: Client, jobid: int | None, *, complain: bool = False
) -> dict[str, Any] | None:
    """Return how a job ended, or None if there is no job to wait for."""
    from flux_trio.messages import Errno, FluxError, topics

    any_job = (1 << 64) - 1
    try:
        return await client.call(topics.JOB_WAIT, {"id": any_job if jobid is None else jobid})
    except FluxError as error:
        if error.errnum != Errno.ECHILD:
            raise
        if complain:
            remark(str(error))
        return None


def _failure(result: dict[str, Any]) -> str:
    from flux_trio.cli.terminal.shown_values import how_it_ended
    from flux_trio.formats import printable
    from flux_trio.process.exit_code import exit_code

    status = result.get("waitstatus")
    return printable(str(result["errstr"])) if status is None else how_it_ended(exit_code(status))


@click.command(cls=Command)
@click.option(
    "-e",
    "--exception-exit-code",
    "exception_code",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="The exit code of a job that ended by an exception.",
)
@click.option("-j", "--json", "as_json", is_flag=True, help="Print each job as JSON.")
@click.option(
    "-v", "--verbose", count=True, help="Print how failed jobs ended; -vv: how all jobs ended."
)
@click.argument("jobids", metavar="JOBID...", nargs=-1, required=True, type=JOBID)
@click.pass_context
def status(
    ctx: click.Context, exception_code: int, as_json: bool, verbose: int, jobids: tuple[int, ...]
) -> None:
    """Wait until jobs are over, and exit with the highest of their exit codes.

    Exit codes: the highest exit code of the jobs; 1 if there is no such job, 2 for wrong usage.
    """
    from flux_trio.cli.jobs.job_rows import JobRow
    from flux_trio.cli.terminal.events import json_text

    async def fetch(client: Client) -> list[dict[str, Any]]:
        return [await _ended(client, jobid) for jobid in jobids]

    code = 0
    for record in with_client(fetch):
        if as_json:
            click.echo(json_text(JobRow(record, time.time()).to_json()))
        code = max(code, _status_code(record, exception_code, verbose))
    ctx.exit(code)


async def _ended(client: Client, jobid: int) -> dict[str, Any]:
    """Wait for the end of a job, then return its job-list record."""
    from flux_trio.cli.connection.call_each import about
    from flux_trio.client.jobs import watch_eventlog

    with about(jobid):
        async with watch_eventlog(client, jobid) as responses:
            async for _ in responses:
                pass
    return await _listed(client, jobid)


async def _listed(client: Client, jobid: int) -> dict[str, Any]:
    """Return the job-list record of a job."""
    from flux_trio.cli.connection.call_each import about
    from flux_trio.messages import topics

    with about(jobid):
        record: dict[str, Any] = (await client.call(topics.LIST_ID, {"id": jobid}))["job"]
    return record


def _status_code(record: dict[str, Any], exception_code: int, verbose: int) -> int:
    from flux_trio.process.exit_code import exit_code

    name = shown_id(record["id"])
    wait_status = record.get("waitstatus")
    code = 0 if wait_status is None else exit_code(wait_status)
    fatal = record.get("exception_severity") == 0
    if verbose > 1 or (verbose and (code or fatal)):
        kind = record.get("exception_type")
        remark(
            f"{name}: exception type={kind}" if fatal else f"{name}: exited with exit code {code}"
        )
    return max(code, exception_code) if fatal else code


@click.command(cls=Command)
@click.argument("which", metavar="[N|SLICE]", default="1")
def last(which: str) -> None:
    """Print the id of the job that you submitted last, of the last N jobs, or of a SLICE.

    A slice is written as in Python, with the latest job first: [0:4], [-1:], [::-1].

    Exit codes: 0, 1 if there is no job, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    if "[" not in which and not which.isdigit():
        raise click.UsageError(f"expected a number or a slice such as [:4], got {which!r}")
    chosen = which if "[" in which else f"[:{which}]"
    answer = with_client(lambda client: client.call(topics.JOB_HISTORY, {"slice": chosen}))
    if not answer["jobs"]:
        raise CommandError("job history is empty")
    for jobid in answer["jobs"]:
        click.echo(shown_id(jobid))


@click.command(cls=Command)
@click.option("-H", "--human", is_flag=True, help="Print a duration such as 1.5h.")
@click.argument("jobid", metavar="[JOBID]", required=False, type=JOBID)
def timeleft(human: bool, jobid: int | None) -> None:
    """Print how many seconds a job may still run. Inside a job, JOBID may be left out.

    Exit codes: 0, 1 if the job is pending or there is no such job, 2 for wrong usage.
    """
    from flux_trio.cli.jobs.job_rows import JobRow
    from flux_trio.cli.terminal.columns import short_duration
    from flux_trio.protocols import PENDING, JobState

    if jobid is None:
        own = os.environ.get("FLUX_JOB_ID")
        if own is None:
            raise CommandError("expected a JOBID: this command does not run inside a job")
        jobid = JOBID.convert(own, None, None)
    record = with_client(lambda client: _listed(client, jobid))
    row = JobRow(record, time.time())
    if row.state & PENDING:
        raise CommandError("job has not started")
    left = row.t_remaining
    if row.state is JobState.RUN and not record.get("expiration"):
        click.echo("infinity" if human else FOREVER_S)
    else:
        click.echo(short_duration(left) if human else int(left))


@click.command(cls=Command)
def stats() -> None:
    """Print the number of jobs in each state and with each result, as JSON.

    Exit codes: 0, 1 if the instance does not answer, 2 for wrong usage.
    """
    import json

    from flux_trio.messages import topics

    answer = with_client(lambda client: client.call(topics.LIST_STATS))
    json.dump(answer, sys.stdout)
    click.echo()


COMMANDS: Final = (wait, status, last, timeleft, stats)
