"""The files that a task of the shell host reads and writes: the host's own, or the job's.

The host's own files are private. The files that a job names are the user's: relative to the job's
directory, made with the job's umask, perhaps links. The first task that opens one for
output truncates it, unless the job appends; every task appends to it. The host does not wait for
the other end of a FIFO: output to a FIFO without a reader is an error of the job, input from a FIFO
without a writer is empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from flux_trio.process.private import PrivateDirectory
from flux_trio.shell.protocol import STREAMS

_OUTPUT_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_INPUT_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC
FALLBACK: Final = "/tmp"  # as flux-core (readings: Missing working directory)
_MODE: Final = 0o666  # less the umask of the job, which is the host's


@contextmanager
def open_streams(
    directory: PrivateDirectory,
    own: Mapping[str, str],
    asked: Mapping[str, str],
    cwd: str,
    emptied: set[str] | None,
    pipe: int | None = None,
    labeled: Mapping[str, str] = {},
) -> Iterator[tuple[int, int, int]]:
    """Yield descriptors for standard input, output and error, open during the block.

    `own` has the shell host's files in `directory`, which always exist; `asked` has the files that
    the job uses instead, by stream. `emptied` has the files that other tasks of the job have
    truncated; None means that no file is truncated. `pipe` is the standard input if it is not a
    file. A task writes a stream of `labeled` to that file in `directory`, and the host copies it to
    the job's file. Raises OSError.
    """
    with ExitStack() as files:

        def opened(path: str, flags: int) -> int:
            # opening a FIFO without a peer would block the host, and with it all jobs
            descriptor = os.open(path, flags | os.O_NONBLOCK, _MODE)
            files.callback(os.close, descriptor)
            os.set_blocking(descriptor, True)  # tasks expect blocking files
            return descriptor

        def opened_own(name: str) -> int:
            descriptor = directory.open(name, _OUTPUT_FLAGS)
            files.callback(os.close, descriptor)
            return descriptor

        if pipe is None:
            path = place(cwd, asked["stdin"]) if "stdin" in asked else os.devnull
            pipe = opened(path, _INPUT_FLAGS)
        descriptors = [pipe]
        for stream in STREAMS:
            descriptor = opened_own(own[stream])
            if stream in asked:
                path = place(cwd, asked[stream])
                first = emptied is not None and path not in emptied
                descriptor = opened(path, _OUTPUT_FLAGS | (os.O_TRUNC if first else 0))
                if emptied is not None:
                    emptied.add(path)
            if stream in labeled:
                descriptor = opened_own(labeled[stream])
            descriptors.append(descriptor)
        stdin, stdout, stderr = descriptors
        yield stdin, stdout, stderr


def working_directory(wanted: str) -> tuple[str, str]:
    """Return where the tasks of a job run, and a warning for their user if it is another place."""
    try:
        descriptor = os.open(wanted, os.O_DIRECTORY | os.O_PATH | os.O_CLOEXEC)
        try:
            os.stat(".", dir_fd=descriptor)  # needs the right to enter it
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        why = error.strerror if isinstance(error, OSError) else error
        return FALLBACK, f"WARNING: could not change to {wanted}: {why}. Going to {FALLBACK}\n"
    return wanted, ""


@contextmanager
def open_output(path: str) -> Iterator[int]:
    """Yield a descriptor that appends to a file which a job names. Raises OSError."""
    descriptor = os.open(path, _OUTPUT_FLAGS | os.O_NONBLOCK, _MODE)
    try:
        os.set_blocking(descriptor, True)
        yield descriptor
    finally:
        os.close(descriptor)


def place(cwd: str, path: str) -> str:
    """Return where the file is that a job names."""
    return str(Path(cwd, path))
