"""`flux-trio attach`: the commands that join a live flux-core; each is a module of this package."""

from __future__ import annotations

import click

from flux_trio.cli.attach.exec import exec as exec_
from flux_trio.cli.attach.monitor import monitor
from flux_trio.cli.attach.sched import sched
from flux_trio.cli.terminal.examples import Group


@click.group(cls=Group)
def attach() -> None:
    """Join a live flux-core: the instance at --to URI, else the one that FLUX_URI names."""


attach.add_command(monitor)
attach.add_command(sched)
attach.add_command(exec_)
