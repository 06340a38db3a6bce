"""`flux-trio backup`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.terminal.examples import Command

if TYPE_CHECKING:
    from flux_trio.client import Client


@click.command(cls=Command)
@click.option(
    "--statedir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Copy the state in DIR. [default: that of the instance that other commands would reach]",
)
@click.argument("directory", type=click.Path(path_type=Path))
def backup(*, statedir: Path | None, directory: Path) -> None:
    """Copy the state directory of an instance to DIRECTORY, while the instance runs or not.

    The copy has all jobs as they are at its end, the output so far of jobs that run, the tokens of
    guests, the log, and the plugins of the state directory. It does not have the configuration.

    DIRECTORY is on the machine of the instance, and must be empty or not exist. No instance starts
    in it: `flux-trio restore` makes a state directory of it. If the copy fails, nothing is left.

    Exit codes: 0, 1 if there is no complete copy, 2 for wrong usage.
    """
    from flux_trio.client import STATEDIR_VARIABLE, URI_VARIABLE, NoInstance, default_statedir
    from flux_trio.messages import topics
    from flux_trio.store.state_directory import STATE_FILE

    environ = dict(os.environ)
    if statedir is not None:
        environ.pop(URI_VARIABLE, None)
        environ[STATEDIR_VARIABLE] = str(statedir)
    where = Path(environ.get(STATEDIR_VARIABLE) or default_statedir(environ))
    whole = {"directory": str(directory.absolute())}

    async def ask(client: Client) -> int:
        return int((await client.call(topics.BROKER_BACKUP, whole))["bytes"])

    try:
        nbytes = with_client(ask, environ)
    except CommandError as error:
        is_here = URI_VARIABLE not in environ and (where / STATE_FILE).exists()
        if not (is_here and isinstance(error.__cause__, NoInstance)):
            raise
        nbytes = _of_stopped(where.absolute(), directory.absolute())
    click.echo(f"{directory}: {nbytes} bytes")


def _of_stopped(statedir: Path, directory: Path) -> int:
    """Make the backup here: nothing runs in `statedir`. Raises CommandError."""
    from contextlib import closing

    from flux_trio._version import __version__
    from flux_trio.messages import FluxError
    from flux_trio.store.backup import Mark, take
    from flux_trio.store.sqlite_store import SqliteStore
    from flux_trio.store.state_directory import STATE_FILE

    mark = Mark(str(statedir), time.time(), __version__)
    try:
        # the store is open all the time, so that no instance starts meanwhile
        with closing(SqliteStore(statedir / STATE_FILE)) as store:
            return take(statedir, directory, mark, lambda path: store.backup(path, lambda: None))
    except FluxError as error:
        raise CommandError(error.text) from None
