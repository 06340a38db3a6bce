"""`flux-trio fuzz` in this process."""

from __future__ import annotations

from typing import Final

import click.testing

from flux_trio.cli import main

HERE: Final = ("--executor", "tests.support.at_once:AtOnce")
"""Options with which worlds are played in this process, too."""


def fuzz(*args: object) -> click.testing.Result:
    """Run the command."""
    runner = click.testing.CliRunner()
    return runner.invoke(main, ["fuzz", *map(str, args)], prog_name="flux-trio")
