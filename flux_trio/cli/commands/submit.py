"""`flux-trio submit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flux_trio.cli.session import with_client
from flux_trio.cli.submit_options import prepare, submit_options

if TYPE_CHECKING:
    from flux_trio.client import Client


@click.command(context_settings={"allow_interspersed_args": False})
@submit_options
def submit(**options: Any) -> None:
    """Submit a job that runs COMMAND, and print its id.

    Exit codes: 0 once the job is accepted and stored, 1 if it is refused, 2 for wrong usage.
    """
    submission, jobspec = prepare(**options)

    async def send(client: Client) -> int:
        return await client.submit(
            jobspec.to_json(), urgency=submission.urgency, flags=submission.flag_mask()
        )

    jobid = with_client(send)
    from flux_trio.formats import format_fluid

    click.echo(format_fluid(jobid, "f58"))
