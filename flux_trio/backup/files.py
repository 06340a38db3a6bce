"""The files of a state directory, and how they are copied: each copy is private and durable."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from flux_trio.messages import Errno, FluxError

CHUNK_BYTES: Final = 1 << 20


class BackupError(FluxError):
    """A backup cannot be made or restored; the text names the file."""


@contextmanager
def naming_files() -> Iterator[None]:
    """Turn an OSError of the block into a BackupError that names the file."""
    try:
        yield
    except OSError as error:
        where = error.filename2 or error.filename
        errnum = error.errno if error.errno in (Errno.ENOSPC, Errno.EEXIST) else Errno.EIO
        text = error.strerror or str(error)
        raise BackupError(errnum, f"{where}: {text}" if where else text) from error


def make_directory(directory: Path) -> bool:
    """Make a private directory; return False if there is an empty one. Raises BackupError."""
    with naming_files():
        try:
            directory.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            if any(directory.iterdir()):  # NotADirectoryError names a file
                text = f"{directory}: the directory is not empty"
                raise BackupError(Errno.EEXIST, text) from None
            return False
    return True


def remove_made(directory: Path, *, was_there: bool) -> None:
    """Remove all that is in a directory, and the directory itself unless it was there."""
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()
    if not was_there:
        with suppress(OSError):
            directory.rmdir()


def check_room(directory: Path, needed: int) -> None:
    """Raise BackupError(ENOSPC) unless the disk of `directory` has room for `needed` bytes."""
    free = shutil.disk_usage(directory).free
    if free < needed:
        text = f"{directory}: {needed} bytes are needed, the disk has room for {free}"
        raise BackupError(Errno.ENOSPC, text)


def size_of(path: Path) -> int:
    """Return the size of a file in bytes, 0 if it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def copy_file(source: Path, target: Path) -> int:
    """Copy the file as long as it is now, and return its size; 0 if it has gone meanwhile."""
    try:
        reading = source.open("rb")
    except FileNotFoundError:
        return 0
    with reading, open_private(target) as writing:
        left = size = os.fstat(reading.fileno()).st_size
        while left > 0 and (chunk := reading.read(min(left, CHUNK_BYTES))):
            _write(writing, chunk, target)
            left -= len(chunk)
        os.fsync(writing)
    return size - left


def write_file(target: Path, data: bytes) -> int:
    """Write a new file, and return its size."""
    with open_private(target) as writing:
        _write(writing, data, target)
        os.fsync(writing)
    return len(data)


def copy_tree(source: Path, target: Path, without: tuple[str, ...] = ()) -> int:
    """Copy the regular files of a directory and of those beneath it; return their size."""
    target.mkdir(mode=0o700, exist_ok=True)
    nbytes = 0
    for path in sorted(source.iterdir()):
        if path.name in without:
            continue
        if path.is_dir():
            nbytes += copy_tree(path, target / path.name)
        elif path.is_file():
            nbytes += copy_file(path, target / path.name)
    return nbytes


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def open_private(target: Path) -> Iterator[int]:
    """Open a new file that only this user can read, as a descriptor."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write(descriptor: int, data: bytes, target: Path) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError as error:
        error.filename = str(target)
        raise
