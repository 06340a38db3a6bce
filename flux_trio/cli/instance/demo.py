"""`flux-trio demo`."""

from __future__ import annotations

import os

import click

from flux_trio.cli.terminal.examples import Command


@click.command(cls=Command)
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Show an instance at work: submit jobs, watch them, fail, cancel, and reload the scheduler.

    Each step is a command that you could type, and is printed with its output. In a shell or job of
    an instance the steps are done there. Elsewhere the command starts an instance of its own, for
    which this machine acts as four nodes, and also restarts it.

    Exit codes: 0 if everything went as it should, else 1; 2 for wrong usage.
    """
    from flux_trio.cli.instance.tour import tour_of, tour_of_own_instance
    from flux_trio.client import INSIDE_VARIABLE

    inside = INSIDE_VARIABLE in os.environ
    ctx.exit((tour_of if inside else tour_of_own_instance)(os.environ))
