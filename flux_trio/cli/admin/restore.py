"""`flux-trio restore`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.terminal.examples import Command


@click.command(cls=Command)
@click.argument("backup", type=click.Path(path_type=Path))
@click.argument("statedir", type=click.Path(path_type=Path))
def restore(*, backup: Path, statedir: Path) -> None:
    """Make the state directory STATEDIR from BACKUP, which `flux-trio backup` has made.

    STATEDIR must be empty or not exist; BACKUP stays as it is. The copy starts no job of the backup
    a second time, also if the instance that was backed up runs on: jobs that had resources end with
    an exception `restore`, and all queues are stopped. Jobs that waited may have run since; cancel
    those, then start the queues by `flux-trio queue start --all`.

    Exit codes: 0, 1 if STATEDIR could not be made, and then nothing is left of it; 2 for wrong
    usage.
    """
    from flux_trio.messages import FluxError
    from flux_trio.store.backup import restore as restore_backup

    try:
        restored = restore_backup(backup.absolute(), statedir.absolute(), time.time())
    except FluxError as error:
        raise CommandError(error.text) from None
    click.echo(f"{statedir}: a copy of {restored.mark.statedir}")
    click.echo(f"{restored.ended} jobs had resources and end, {restored.waiting} jobs wait")
    click.echo("all queues are stopped: when the jobs may run, `flux-trio queue start --all`")
