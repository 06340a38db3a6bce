"""`flux-trio-module-loader`: loads modules that are written for Trio into flux-core."""

from __future__ import annotations

import sys
from typing import Final

import click

from flux_trio.cli.attach.loading import run_loader

USAGE: Final = """Load a module that is written for Trio into a live flux-core.

\b
    L=$(command -v flux-trio-module-loader)
    flux module remove sched-simple
    flux module load --loader=$L $(flux-trio-module-loader --path sched) policy=easy

PATH is a file of Python with `async def mod_main(flux, *args, task_status)`; flux-trio's own are
those that --path knows. The broker runs this command; the arguments come with its first message.
"""


@click.command(help=USAGE)
@click.argument("path", required=False)
@click.option(
    "--path", "name", metavar="NAME", help="Print where the module of our service NAME is."
)
def module_loader(path: str | None, name: str | None) -> None:
    from flux_trio.attach.module import MODULES, load_module

    if name is None:
        sys.exit(run_loader(load_module, path))
    found = MODULES / f"{name}_trio.py"
    if not found.exists():
        names = sorted(each.stem.removesuffix("_trio") for each in MODULES.glob("*_trio.py"))
        raise click.ClickException(f"expected one of {', '.join(names)}, got {name}")
    click.echo(found)


def main() -> None:
    """Run the command."""
    module_loader(prog_name="flux-trio-module-loader")
