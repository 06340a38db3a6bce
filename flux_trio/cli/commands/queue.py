"""`flux-trio queue`: whether jobs are scheduled, and if not, why. Named queues are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flux_trio.cli.session import with_client

if TYPE_CHECKING:
    from flux_trio.client import Client


@click.group()
def queue() -> None:
    """Look at the queue, start it, stop it."""


@queue.command()
@click.option("-v", "--verbose", is_flag=True, help="Count requests and jobs as well.")
def status(verbose: bool) -> None:
    """Show whether jobs may be submitted and are scheduled, and why not.

    Exit codes: 0, or 2 for wrong usage.
    """
    for line in with_client(lambda client: _status(client, verbose)):
        click.echo(line)


@queue.command()
@click.option("-q", "--quiet", is_flag=True, help="Do not show the status afterwards.")
def start(quiet: bool) -> None:
    """Let the scheduler be asked for resources.

    Exit codes: 0 if it was started, 1 if not, 2 for wrong usage.
    """
    _set(True, quiet)


@queue.command()
@click.option("-q", "--quiet", is_flag=True, help="Do not show the status afterwards.")
def stop(quiet: bool) -> None:
    """Take back what the scheduler was asked for; running jobs go on.

    Exit codes: 0 if it was stopped, 1 if not, 2 for wrong usage.
    """
    _set(False, quiet)


def _set(started: bool, quiet: bool) -> None:
    for line in with_client(lambda client: _start(client, started)):
        if not quiet:
            click.echo(line)


async def _start(client: Client, started: bool) -> list[str]:
    from flux_trio.messages import topics

    await client.call(topics.JOB_QUEUE_START, {"start": started})
    return await _status(client, False)


async def _status(client: Client, verbose: bool) -> list[str]:
    from flux_trio.messages import topics

    told = await client.call(topics.JOB_QUEUE_STATUS)
    lines = status_lines(told)
    if verbose:
        lines += count_lines(await client.call(topics.JOB_STATS))
    return lines


def status_lines(told: dict[str, Any]) -> list[str]:
    """What a queue-status answer says, in flux-queue's words; then who is silent."""
    submission = "enabled" if told["enable"] else "disabled"
    scheduling = "started" if told["start"] else "stopped"
    if not told["start"] and "stop_reason" in told:
        scheduling += f": {told['stop_reason']}"
    lines = [f"Job submission is {submission}", f"Scheduling is {scheduling}"]
    return lines + list(told.get("silent", []))


def count_lines(stats: dict[str, Any]) -> list[str]:
    """The counts of flux-queue's verbose status."""
    states, sched = stats["states"], stats["sched"]
    return [
        f"{sched['waiting']} alloc requests queued",
        f"{sched['outstanding']} alloc requests pending to scheduler",
        f"{states['run'] + states['cleanup']} running jobs",
    ]
