"""`flux-trio shell`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from flux_trio.cli.instance.start import CONFIG, STATEDIR, TARGETS, start
from flux_trio.cli.terminal.examples import Command


@click.command(cls=Command)
@CONFIG
@TARGETS
@STATEDIR
@click.pass_context
def shell(
    ctx: click.Context, *, config: Path | None, targets: int | None, statedir: Path | None
) -> None:
    """Open your shell inside an instance that Flux's own programs know.

    It is `flux-trio start --edition current` with your shell ($SHELL) as its command: FLUX_URI is
    set, so that `flux jobs`, `flux submit` and programs that use Flux's Python bindings reach this
    instance. The instance ends when you leave the shell. Its jobs are canceled, unless a directory
    is named: then they go on, and `flux-trio shell` with the same directory takes them up.

    Exit codes: that of the shell; 1 if the instance cannot start or go on.
    """
    from flux_trio.editions import CURRENT

    command = (os.environ.get("SHELL") or "/bin/sh",)
    ctx.invoke(
        start,
        config=config,
        targets=targets,
        edition=CURRENT.name,
        statedir=statedir,
        command=command,
    )
