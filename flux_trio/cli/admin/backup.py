"""`flux-trio backup`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.terminal.examples import Command
from flux_trio.process.groups import unwrapping

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    from flux_trio.store.state_directory import STATE_FILE

    environ = dict(os.environ)
    if statedir is not None:
        environ.pop(URI_VARIABLE, None)
        environ[STATEDIR_VARIABLE] = str(statedir)
    where = Path(environ.get(STATEDIR_VARIABLE) or default_statedir(environ))
    try:
        nbytes = _of_instance(environ, directory.absolute())
    except NoInstance as error:
        if URI_VARIABLE in environ or not (where / STATE_FILE).exists():
            raise CommandError(str(error)) from None
        nbytes = _of_stopped(where.absolute(), directory.absolute())
    click.echo(f"{directory}: {nbytes} bytes")


def _of_instance(environ: Mapping[str, str], directory: Path) -> int:
    """Let the instance make the backup, and return its size. Raises NoInstance and CommandError."""
    import anyio

    from flux_trio.client import ClientError, NoInstance, await_instance, open_client
    from flux_trio.messages import FluxError, LocalProtocolError, topics

    async def ask() -> int:
        async with open_client(*await await_instance(environ)) as client:
            answer = await client.call(topics.BROKER_BACKUP, {"directory": str(directory)})
            return int(answer["bytes"])

    refused = (ClientError, FluxError, LocalProtocolError)
    try:
        with unwrapping(*refused):
            return anyio.run(ask, backend="asyncio")
    except NoInstance:
        raise
    except refused as error:
        raise CommandError(str(error)) from None


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
