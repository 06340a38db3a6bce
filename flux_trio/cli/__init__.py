"""The command line: what people type, and what they read.

`main` is the `flux-trio` command. Each command is one file of `commands`, imported when it is run:
start-up time is part of the interface. What a command does beyond reading its options (jobspecs,
rows, the foreground instance) is in modules of its own, without click.
"""

from flux_trio.cli.app import main

__all__ = ["main"]
