"""`python -m flux_trio.shell DIRECTORY` starts the shell host of a directory: see `host`."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from flux_trio.process.collector import IMPORTING


def run() -> int | str:
    """Start the host; return its exit code, or the text of an error."""
    gc.set_threshold(*IMPORTING)
    from flux_trio.shell.host import main  # with these thresholds

    directory = sys.argv[1]
    gc.freeze()  # what was imported stays
    try:
        return main(Path(directory))
    except OSError as error:
        return f"{error.filename or directory}: {error.strerror}"


if __name__ == "__main__":
    sys.exit(run())
