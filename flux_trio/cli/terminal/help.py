"""`flux-trio help`."""

from __future__ import annotations

from typing import Final

import click

from flux_trio.cli.terminal.examples import Command

MAN: Final = "man"


@click.command("help", cls=Command)
@click.argument("verb", nargs=-1)
@click.pass_context
def help(ctx: click.Context, verb: tuple[str, ...]) -> None:  # noqa: A001 - the command's name
    """Show the man page of a command: VERB is its name, as `submit` or `queue list`.

    Without VERB, the commands are listed. Without a terminal, or where man is not installed, the
    text is that of `flux-trio VERB --help`.

    Exit codes: 0, or 2 for a command that is unknown.
    """
    import shutil
    import subprocess
    import sys
    import tempfile
    from pathlib import Path

    from flux_trio.cli.terminal.manual import man_page, page_name, subcommands

    found = ctx.find_root()
    for word in verb:
        below = {each.info_name: each for each in subcommands(found)}
        if word not in below:
            raise click.NoSuchCommand(word, None, [str(name) for name in below], found)
        found = below[word]
    if not sys.stdout.isatty() or shutil.which(MAN) is None:
        click.echo(found.get_help())
        return
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory, f"{page_name(found)}.1")
        page.write_text(man_page(found), encoding="utf-8")
        ctx.exit(subprocess.run([MAN, str(page)], check=False).returncode)
