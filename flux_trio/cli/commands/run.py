"""`flux-trio run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flux_trio.cli.session import with_client
from flux_trio.cli.submit_options import prepare, submit_options

if TYPE_CHECKING:
    from flux_trio.client import Client


@click.command(context_settings={"allow_interspersed_args": False})
@submit_options
def run(**options: Any) -> None:
    """Submit a job that runs COMMAND, show its output, and end as it does.

    Standard output and standard error of the tasks are those of this command. Two ctrl-C within
    two seconds cancel the job; ctrl-C and ctrl-Z leave it to itself.

    Exit codes: the highest of the tasks, 128 and the number of the signal that ended one; 1 if the
    job is refused or never ran, 2 for wrong usage.
    """
    submission, jobspec = prepare(**options)
    from flux_trio.cli.attach import attach

    async def send_and_follow(client: Client) -> int:
        jobid = await client.submit(
            jobspec.to_json(), urgency=submission.urgency, flags=submission.flag_mask()
        )
        return await attach(client, jobid)

    click.get_current_context().exit(with_client(send_and_follow))
