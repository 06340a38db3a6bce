"""`flux-trio token`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flux_trio.cli.connection.session import with_client
from flux_trio.cli.terminal.errors import CommandError
from flux_trio.cli.terminal.examples import Command
from flux_trio.cli.terminal.params import USER

if TYPE_CHECKING:
    from flux_trio.client import Client


@click.command(cls=Command)
@click.option(
    "--user", "userid", type=USER, required=True, metavar="NAME", help="The user of the token."
)
@click.option("--revoke", is_flag=True, help="Make all tokens of the user invalid.")
def token(userid: int, *, revoke: bool) -> None:
    """Print a new token, with which a user connects to this instance as a guest.

    The user puts the token into FLUX_TRIO_TOKEN, and the instance's address into FLUX_TRIO_URI. The
    instance never prints a token again. A token is valid until --revoke, which ends the connections
    that were made with it, too.

    Exit codes: 0, 1 if there is no such user or you are not the owner, 2 for wrong usage.
    """
    from flux_trio.cli.terminal.shown_values import user_name
    from flux_trio.messages import topics

    async def ask(client: Client) -> str:
        payload = {"userid": userid, "name": user_name(userid)}
        return str((await client.call(topics.BROKER_TOKEN, payload))["token"])

    async def ask_to_forget(client: Client) -> int:
        return int((await client.call(topics.BROKER_REVOKE, {"userid": userid}))["count"])

    if not revoke:
        click.echo(with_client(ask))
    elif not (count := with_client(ask_to_forget)):
        raise CommandError(f"{user_name(userid)} has no token")
    else:
        click.echo(f"{count} revoked")
