"""`flux-trio completion`."""

from __future__ import annotations

from typing import Final

import click

from flux_trio.cli.terminal.examples import Command

PROGRAM: Final = "flux-trio"
VARIABLE: Final = "_FLUX_TRIO_COMPLETE"  # click completes when this is set


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script with which a shell completes commands, options, job ids and files.

    For bash: `eval "$(flux-trio completion bash)"` in ~/.bashrc; for zsh the same in ~/.zshrc,
    after compinit.

    Exit codes: 0, or 2 for wrong usage.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # click knows both
    click.echo(kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
