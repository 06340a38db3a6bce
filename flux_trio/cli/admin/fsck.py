"""`flux-trio fsck`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from flux_trio.cli.terminal.errors import complain
from flux_trio.cli.terminal.examples import Command

DAMAGED: Final = 1
NOT_CHECKED: Final = 2


@click.command(cls=Command)
@click.option(
    "--statedir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Check the state in DIR. [default: FLUX_TRIO_STATEDIR, else the default of `start`]",
)
@click.option(
    "--repair",
    is_flag=True,
    help="Write a new state file with all undamaged data; the old file is kept beside it.",
)
@click.pass_context
def fsck(ctx: click.Context, *, statedir: Path | None, repair: bool) -> None:
    """Check the state directory of an instance that is not running.

    Reads the whole state file, and names each key whose value is missing or differs from the value
    that was stored; and the files that the shell host keeps of jobs that have not been stored.
    Without --repair it changes nothing.

    With --repair, a job of which any part is missing goes to job-lost+found in the new file, with
    the parts that can be read. Acknowledged changes that the file does not hold are given up, so
    that the instance can start again. Files of the shell host stay as they are: a job of which one
    is damaged ends with an exception when the instance has started.

    Exit codes: 0 if nothing is damaged, or after --repair; 1 if something is damaged; 2 if the
    state cannot be checked: there is no state file, an instance has it open, or its layout is of
    another version.
    """
    from flux_trio.client import STATEDIR_VARIABLE, default_statedir
    from flux_trio.shell.fsck import check_jobs
    from flux_trio.shell.protocol import SHELL_DIRECTORY
    from flux_trio.store.fsck import Report, check_file, repair_file
    from flux_trio.store.state_directory import STATE_FILE
    from flux_trio.store.stores import StoreError

    given = os.environ.get(STATEDIR_VARIABLE)
    directory = statedir or (Path(given) if given else default_statedir(os.environ))
    path = directory / STATE_FILE
    try:
        repaired = repair_file(path) if repair else []
        report = Report() if repair else check_file(path)
    except StoreError as error:
        complain(error.text)
        ctx.exit(NOT_CHECKED)
    njobs, damage = check_jobs(directory / SHELL_DIRECTORY)
    if repair:
        for line in [*repaired, *(f"{each}: kept as it is" for each in damage)]:
            click.echo(line)
        return
    damage = [*report.damage, *damage]
    for line in damage:
        click.echo(line)
    if damage:
        ctx.exit(DAMAGED)
    holds = f"{report.keys} keys, {report.changes} changes in the journal"
    click.echo(f"{path}: {holds}, and {njobs} jobs of the shell host; nothing is damaged")
