"""The files that a task of the shell host reads and writes: its own, or those that were asked for.

Files that were asked for are relative to the job's directory; the first task of a job that opens
one for output empties it, unless it is to be kept, and every task appends.

The host does not wait for the other end of a FIFO: output to a FIFO that nobody reads is an error
of the job, input from one that nobody writes to is at its end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from flux_trio.shell.protocol import STREAMS

_OUTPUT_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_INPUT_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC


@contextmanager
def open_streams(
    own: Mapping[str, Path],
    asked: Mapping[str, str],
    cwd: str,
    emptied: set[str] | None,
    pipe: int | None = None,
) -> Iterator[tuple[int, int, int]]:
    """Descriptors for standard input, output and error, until the block is left.

    `own` are the shell host's files, which are there in any case; `asked` those that are used
    instead, by stream; `emptied` the ones that other tasks of the job have opened, None if none is
    to be emptied; `pipe` is the standard input if that is no file. OSError.
    """
    with ExitStack() as files:

        def opened(path: str | Path, flags: int) -> int:
            # a FIFO whose other end nobody has open would hold up the host, and with it all jobs
            descriptor = os.open(path, flags | os.O_NONBLOCK, 0o600)
            files.callback(os.close, descriptor)
            os.set_blocking(descriptor, True)  # as a task expects it
            return descriptor

        if pipe is None:
            pipe = opened(_place(cwd, asked.get("stdin", os.devnull)), _INPUT_FLAGS)
        descriptors = [pipe]
        for stream in STREAMS:
            descriptor = opened(own[stream], _OUTPUT_FLAGS)
            if stream in asked:
                path = _place(cwd, asked[stream])
                first = emptied is not None and path not in emptied
                descriptor = opened(path, _OUTPUT_FLAGS | (os.O_TRUNC if first else 0))
                if emptied is not None:
                    emptied.add(path)
            descriptors.append(descriptor)
        stdin, stdout, stderr = descriptors
        yield stdin, stdout, stderr


def _place(cwd: str, path: str) -> str:
    return str(Path(cwd, path))
