"""`flux-trio token`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flux_trio.cli.params import USER
from flux_trio.cli.session import with_client

if TYPE_CHECKING:
    from flux_trio.client import Client


@click.command()
@click.option(
    "--user", "userid", type=USER, required=True, metavar="NAME", help="Whom the token is for."
)
def token(userid: int) -> None:
    """Print a new token, with which a user reaches this instance as a guest.

    The user puts it into FLUX_TRIO_TOKEN, and the instance's address into FLUX_TRIO_URI. The
    instance does not tell it again.

    Exit codes: 0, 1 if there is no such user or you are not the owner, 2 for wrong usage.
    """
    from flux_trio.cli.job_rows import user_name
    from flux_trio.messages import topics

    async def ask(client: Client) -> str:
        payload = {"userid": userid, "name": user_name(userid)}
        return str((await client.call(topics.BROKER_TOKEN, payload))["token"])

    click.echo(with_client(ask))
