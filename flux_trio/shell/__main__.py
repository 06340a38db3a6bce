"""`python -m flux_trio.shell DIRECTORY` starts the shell host of a directory: see `host`."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Final

COLLECT_AT: Final = (100_000, 10, 10)
"""Thresholds of Python's garbage collector. The first job of an instance waits for the host's
imports, and looking through the 40,000 objects that they create took a tenth of that time."""


def run() -> int | str:
    """Start the host; return its exit code, or the text of an error."""
    gc.set_threshold(*COLLECT_AT)
    from flux_trio.shell.host import main  # with these thresholds

    directory = sys.argv[1]
    gc.freeze()  # what was imported stays
    try:
        return main(Path(directory))
    except OSError as error:
        return f"{error.filename or directory}: {error.strerror}"


if __name__ == "__main__":
    sys.exit(run())
