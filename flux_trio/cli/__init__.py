"""The command line.

`main` is the `flux-trio` command. Each command is one file of `commands`; the file is imported
when the command runs, because start-up time is part of the interface. A command's file reads the
options; the work (jobspecs, rows, the foreground instance) is in modules beside `commands`.
"""

from flux_trio.cli.app import main

__all__ = ["main"]
