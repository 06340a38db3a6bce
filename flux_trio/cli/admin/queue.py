"""`flux-trio queue`: list, enable, disable, start and stop queues, and wait for them.

The words and exit codes are those of flux-queue(1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from flux_trio.cli.connection import completing
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.terminal.examples import Group
from flux_trio.cli.terminal.params import DURATION, NO_HEADER, format_option

if TYPE_CHECKING:
    from flux_trio.cli.terminal.columns import FieldsRow
    from flux_trio.client import Client

F = TypeVar("F", bound=Callable[..., Any])

DISABLED: Final = "disabled by administrator"  # the reason when none is given


@click.group(cls=Group)
def queue() -> None:
    """List queues, enable, disable, start and stop them, and wait for them."""


def _queue_argument(function: F) -> F:
    """Add the argument QUEUE, and the older -q QUEUE of flux-queue."""
    function = click.argument(
        "name", metavar="[QUEUE]", required=False, shell_complete=completing.queue
    )(function)
    return click.option(
        "-q",
        "--queue",
        "named",
        metavar="QUEUE",
        help="The same as QUEUE.",
        shell_complete=completing.queue,
    )(function)


def _changing(function: F) -> F:
    """Add the options of the commands that change queues."""
    for option in (
        click.option("-a", "--all", "everyone", is_flag=True, help="Change all queues."),
        click.option("-v", "--verbose", is_flag=True, help="Show all queues, and counts."),
        click.option("--quiet", is_flag=True, help="Do not show the status afterwards."),
    ):
        function = option(function)
    return _queue_argument(function)


def _closing(function: F) -> F:
    """Add the options of the commands that disable or stop queues."""
    function = click.option("-m", "--message", metavar="REASON", help="The reason.")(function)
    return click.option(
        "--nocheckpoint", is_flag=True, help="Forget this when the instance restarts."
    )(function)


@queue.command("list")
@click.option(
    "-q",
    "--queue",
    "names",
    metavar="QUEUE,...",
    help="List only these queues.",
    shell_complete=completing.queues,
)
@NO_HEADER
@format_option("queue fields")
def list_queues(names: str | None, no_header: bool, layout: str | None) -> None:
    """List queues with their status, default time limit and limits.

    The fields of a FORMAT are those of flux-queue(1): {queue}, {submission}, {limits.timelimit!F},
    {limits.range.nnodes}, {resources.free.ncores} and so on.

    Exit codes: 0, 1 if there is no such queue or the instance does not answer, 2 for wrong usage.
    """
    from flux_trio.cli.admin.queue_rows import FIELDS, FORMATS
    from flux_trio.cli.terminal.named_formats import choose_layout

    columns = choose_layout(layout, "flux-queue-list", FORMATS, FIELDS)
    wanted = names.split(",") if names else []
    rows = with_client(lambda client: _rows(client, wanted, columns.fields))
    columns.print(rows, header=not no_header)


@queue.command()
@_queue_argument
@click.option("-v", "--verbose", is_flag=True, help="Show all queues and counts.")
def status(name: str | None, named: str | None, verbose: bool) -> None:
    """Show whether queues accept jobs and schedule them, with the reason if they do not.

    Exit codes: 0, 1 if there is no such queue or the instance does not answer, 2 for wrong usage.
    """
    from flux_trio.cli.admin.queue_status import nodes_down, status_lines, statuses_and_counts

    chosen = _one(name, named)

    async def ask(client: Client) -> list[str]:
        lines = await statuses_and_counts(client, chosen, verbose, status_lines)
        return lines + await nodes_down(client)

    for line in with_client(ask):
        click.echo(line)


@queue.command()
@_changing
def enable(**options: Any) -> None:
    """Let a queue accept jobs.

    Exit codes: 0 if it was enabled, 1 if nothing was changed, 2 for wrong usage.
    """
    _change({"enable": True}, **options)


@queue.command()
@_changing
@_closing
def disable(message: str | None, nocheckpoint: bool, **options: Any) -> None:
    """Let a queue refuse new jobs, with REASON. Jobs that are in the queue go on.

    Exit codes: 0 if it was disabled, 1 if nothing was changed, 2 for wrong usage.
    """
    reason = message or DISABLED
    _change({"enable": False, "reason": reason, "nocheckpoint": nocheckpoint}, **options)


@queue.command()
@_changing
def start(**options: Any) -> None:
    """Start a queue: request resources for its jobs from the scheduler.

    Exit codes: 0 if it was started, 1 if nothing was changed, 2 for wrong usage.
    """
    _change({"start": True}, **options)


@queue.command()
@_changing
@_closing
def stop(message: str | None, nocheckpoint: bool, **options: Any) -> None:
    """Stop a queue: cancel its requests for resources. Running jobs go on.

    Exit codes: 0 if it was stopped, 1 if nothing was changed, 2 for wrong usage.
    """
    why = {} if message is None else {"reason": message}
    _change({"start": False, "nocheckpoint": nocheckpoint, **why}, **options)


@queue.command()
@_queue_argument
@click.option("-t", "--timeout", type=DURATION, help="Wait no longer than that.")
def drain(name: str | None, named: str | None, timeout: float | None) -> None:
    """Wait until QUEUE, or every queue, has no pending and no running job.

    Exit codes: 0, 1 if there is no such queue or the time is up, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    _wait(topics.JOB_DRAIN, _one(name, named), timeout)


@queue.command()
@_queue_argument
@click.option("-t", "--timeout", type=DURATION, help="Wait no longer than that.")
@click.option("--quiet", is_flag=True, help="Print nothing if no job is pending.")
def idle(name: str | None, named: str | None, timeout: float | None, quiet: bool) -> None:
    """Wait until QUEUE, or every queue, has no running job, then print how many jobs are pending.

    A job that is being cleaned up counts as running.

    Exit codes: 0, 1 if there is no such queue or the time is up, 2 for wrong usage.
    """
    from flux_trio.messages import topics

    pending = _wait(topics.JOB_IDLE, _one(name, named), timeout)["pending"]
    if pending or not quiet:
        click.echo(f"{pending} jobs")


# --- helpers


def _one(name: str | None, named: str | None) -> str | None:
    if name is not None and named is not None and name != named:
        raise click.UsageError(f"Conflicting queues specified as --queue={named} and {name}")
    return name if named is None else named


def _change(
    payload: dict[str, Any],
    *,
    name: str | None,
    named: str | None,
    everyone: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Enable, disable, start or stop queues as `payload` says, and print their status."""
    from flux_trio.cli.admin import queue_status
    from flux_trio.messages import topics

    chosen = _one(name, named)
    starts = "start" in payload
    topic = topics.JOB_QUEUE_START if starts else topics.JOB_QUEUE_ENABLE
    payload |= {"all": everyone} | ({} if chosen is None else {"name": chosen})

    async def change(client: Client) -> list[str]:
        is_open = starts and chosen is None and not everyone  # which queues?
        if is_open and await queue_status.queue_names(client) != [None]:
            raise CommandError("Named queues are defined. Specify queues or use --all.")
        await client.call(topic, payload)
        if quiet:
            return []
        if starts:
            return await queue_status.statuses_and_counts(
                client, chosen, verbose, queue_status.start_lines
            )
        return await queue_status.statuses(client, chosen, verbose, queue_status.enable_lines)

    for line in with_client(change):
        click.echo(line)


def _wait(topic: str, name: str | None, timeout: float | None) -> dict[str, Any]:
    import anyio

    async def wait(client: Client) -> dict[str, Any]:
        with anyio.move_on_after(timeout):
            return await client.call(topic, {} if name is None else {"name": name})
        raise CommandError("timeout")

    return with_client(wait)


async def _rows(client: Client, wanted: list[str], fields: list[str]) -> list[FieldsRow]:
    from flux_trio.cli.admin.queue_rows import needs_jobs, queue_row
    from flux_trio.cli.admin.queue_status import queue_names, queue_status
    from flux_trio.cli.admin.resource_rows import fetch_resources
    from flux_trio.config import read_config
    from flux_trio.messages import topics

    config = read_config((await client.call(topics.CONFIG_GET, {"defaults": True}))["config"])
    _, resources = await fetch_resources(client, with_jobs=needs_jobs(fields))
    return [
        queue_row(name, config, await queue_status(client, name), resources)
        for name in wanted or await queue_names(client)
    ]
