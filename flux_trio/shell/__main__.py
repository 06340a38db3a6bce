"""`python -m flux_trio.shell DIRECTORY` starts the shell host of a directory: see `host`.

With `--when-told` it imports, and starts when it can read from its standard input: see `begun`.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from flux_trio.process.collector import IMPORTING
from flux_trio.shell.begun import WHEN_TOLD


def run() -> int | str:
    """Start the host; return its exit code, or the text of an error."""
    gc.set_threshold(*IMPORTING)
    from flux_trio.shell.host import main  # with these thresholds

    directory = sys.argv[1]
    if WHEN_TOLD in sys.argv[2:] and not sys.stdin.buffer.read(1):
        return 0  # nobody needs a host
    gc.freeze()  # what was imported stays
    try:
        return main(Path(directory))
    except OSError as error:
        return f"{error.filename or directory}: {error.strerror}"


if __name__ == "__main__":
    sys.exit(run())
