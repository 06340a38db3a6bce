"""`flux-trio top`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

import click

from flux_trio.cli.connection import completing
from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import color_option

if TYPE_CHECKING:
    from rich.console import Console

    from flux_trio.cli.jobs.top_screen import Snapshot, View
    from flux_trio.client import Client

REFRESH_S: Final = 2.0
UNCUT: Final = 1000  # columns, when standard output is not a terminal


@click.command(cls=Command)
@click.option(
    "-q",
    "--queue",
    metavar="NAME",
    help="Show the jobs of this queue.",
    shell_complete=completing.queue,
)
@color_option()
def top(queue: str | None, color: bool) -> None:
    """Show the activity of the instance, refreshed until you quit; once, if there is no terminal.

    Keys: j and k or arrows move the cursor, h and l switch the queue, d shows inactive jobs by
    result or as one number, q quits.

    Exit codes: 0, 1 if there is no such queue or the instance does not answer, 2 for wrong usage.
    """
    from rich.console import Console

    from flux_trio.cli.jobs.top_screen import View, screen
    from flux_trio.messages import topics

    live = sys.stdin.isatty() and sys.stdout.isatty()
    width = None if sys.stdout.isatty() else UNCUT
    console = Console(no_color=not color, highlight=False, width=width)

    async def show(client: Client) -> None:
        view = View(queue=queue)
        known = (await client.call(topics.JOB_QUEUE_LIST))["queues"]
        if queue is not None and queue not in known:
            raise CommandError(f"queue {queue} not configured")
        if live:
            await _show_live(client, console, view)
        else:
            snapshot = await _snapshot(client, view)
            console.print(screen(snapshot, view, len(snapshot.jobs) + 8, console.width))

    with_client(show)


async def _show_live(client: Client, console: Console, view: View) -> None:
    from rich.live import Live

    from flux_trio.cli.jobs.top_screen import screen
    from flux_trio.cli.terminal.keys import keys, read_key

    with keys(), Live(console=console, screen=True, auto_refresh=False) as screen_of:
        snapshot = await _snapshot(client, view)
        while not view.ended:
            shown = screen(snapshot, view, console.height, console.width)
            screen_of.update(shown, refresh=True)
            key = await read_key(REFRESH_S)
            changed = view.after(key, snapshot)
            if not key or changed.queue != view.queue:
                snapshot = await _snapshot(client, changed)
            view = changed


async def _snapshot(client: Client, view: View) -> Snapshot:
    from flux_trio.cli.connection.job_query import JobQuery
    from flux_trio.cli.jobs.top_screen import Snapshot
    from flux_trio.messages import topics
    from flux_trio.protocols import RUNNING

    queues = () if view.queue is None else (view.queue,)
    status = await client.call(topics.RESOURCE_STATUS)
    jobs = await JobQuery(states=int(RUNNING), queues=queues).fetch(client)
    held = await client.call(topics.JOB_RESOURCE_STATUS)
    return Snapshot(
        info=await client.call(topics.BROKER_INFO),
        status=status,
        stats=await client.call(topics.LIST_STATS),
        queues=(await client.call(topics.JOB_QUEUE_LIST))["queues"],
        jobs=jobs,
        now=time.time(),
        held=held["allocated"],
    )
