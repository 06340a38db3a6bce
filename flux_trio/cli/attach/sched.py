"""`flux-trio attach sched`."""

from __future__ import annotations

from functools import partial

import click

from flux_trio.cli.attach.serving import TO, serve_until_signal
from flux_trio.cli.terminal.errors import remark
from flux_trio.cli.terminal.params import POLICY


@click.command()
@TO
@click.option(
    "--policy",
    type=POLICY,
    metavar="POLICY",
    required=True,
    help="Schedule by this policy: fifo, easy, conservative, or a class of yours, FILE.py:Class.",
)
def sched(to: str | None, policy: str) -> None:
    """Schedule the jobs of a live flux-core, until SIGTERM or ctrl-C.

    The module that schedules there must be removed first: flux module remove sched-simple. Jobs
    that run go on, also when this command ends; the next scheduler takes over what they hold.

    Exit codes: 0 after SIGTERM or ctrl-C, 1 if there is another scheduler or the broker or its
    resource module has left, 2 for wrong usage.
    """
    from flux_trio.attach.sched import run

    def tell(held: int) -> None:
        remark(f"schedules by {policy}; jobs that hold resources: {held}")

    serve_until_signal(to, "sched", partial(run, policy=policy, on_ready=tell))
