"""`flux-trio-tap`: a loader that stands between flux-core's broker and a module."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from flux_trio.cli.attach.loading import run_loader

MODULE_PATH: Final = "FLUX_MODULE_PATH"

USAGE: Final = """Record the messages of a module of flux-core, and break them on purpose.

\b
    flux module remove sched-simple
    flux module load --loader=$(command -v flux-trio-tap) \\
        $(flux-trio-tap --path sched-fifo) tap-trace=$PWD/trace.jsonl
    flux-trio check --edition current --known flux-core-0.88 trace.jsonl

The broker runs this command with the PATH of the module. What to do comes with the module's
arguments, and those that do not begin with tap- are the module's own:

\b
    tap-trace=FILE                    record the messages there
    tap-drop=PATTERN                  do not pass the message on
    tap-duplicate=PATTERN             pass it on twice
    tap-delay=PATTERN,s=SECONDS       pass it on so much later
    tap-hold=PATTERN[,until=PATTERN]  pass it on after one of the other pattern
    tap-loader=PROGRAM                start the module by this loader

A PATTERN is DIRECTION,TYPE,TOPIC[,KEY=VALUE]...[,n=WHICH], as in tx,response,sched.alloc,n=2.
DIRECTION is tx or rx, as seen by the module, and TOPIC may be a glob. KEY is a field of the header
or a key of the payload. WHICH counts from 1, which is the default: 2, 2-4 or 2-.
"""


@click.command(help=USAGE)
@click.argument("path", required=False)
@click.option("--path", "name", metavar="NAME", help="Print where flux-core's module NAME is.")
def tap(path: str | None, name: str | None) -> None:
    if name is not None:
        click.echo(path_of(name, os.environ.get(MODULE_PATH, "")))
        return
    from flux_trio.attach.tap.tapping import run_tap

    code = run_loader(run_tap, path)
    if code < 0:
        with suppress(OSError):  # SIGKILL has no other effect
            signal.signal(-code, signal.SIG_DFL)
        signal.raise_signal(-code)  # so the broker hears what has ended the module
    sys.exit(code)


def path_of(name: str, directories: str) -> Path:
    """Return the file of the module `name` in one of the directories, which colons separate."""
    if not directories:
        raise click.ClickException(f"expected {MODULE_PATH}, as in `flux env` or an instance")
    for directory in directories.split(":"):
        for suffix in (".py", ".so"):
            if (found := Path(directory, name + suffix)).exists():
                return found
    raise click.ClickException(f"expected a module in {directories}, got {name}")


def main() -> None:
    """Run the command."""
    tap(prog_name="flux-trio-tap")
