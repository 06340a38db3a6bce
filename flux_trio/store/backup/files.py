"""The files of a state directory, and how they are copied: each copy is private and durable.

The mark of a complete backup is a file that is written last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from flux_trio.client import BACKUP_FILE
from flux_trio.formats import FormatError
from flux_trio.messages import Errno, FluxError
from flux_trio.process.private import foreign, make_directory, open_private, opener

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


@contextmanager
def new_directory(directory: Path, source: Path) -> Iterator[Path]:
    """Make a private directory, or take an empty one, that the block fills with copies of `source`.

    Yields an empty file in it, `backup.json`: with that file, no instance starts in the directory,
    and nobody else fills it. An OSError of the block becomes a BackupError. After any exception
    nothing is left of what was made. Raises BackupError.
    """
    if directory.resolve().is_relative_to(source.resolve()):  # it would be copied into itself
        text = f"{directory}: expected a directory that is not in {source}"
        raise BackupError(Errno.EINVAL, text)
    with naming_files():
        made = _make(directory)
        claim = directory / BACKUP_FILE
        try:
            write_file(claim, b"")
            if len(list(directory.iterdir())) > 1:
                claim.unlink()
                raise _not_empty(directory)
        except FileExistsError:
            raise _not_empty(directory) from None
    with ExitStack() as undo:
        undo.callback(_remove, directory, claim, made)
        with naming_files():
            yield claim
        undo.pop_all()


def _make(directory: Path) -> bool:
    try:
        made = make_directory(directory)
    except FileExistsError:
        raise BackupError(Errno.EEXIST, f"{directory}: expected a directory") from None
    if reason := foreign(directory.resolve()):  # others could put files into it meanwhile
        raise BackupError(Errno.EPERM, f"{directory}: {reason}")
    return made


def _not_empty(directory: Path) -> BackupError:
    return BackupError(Errno.EEXIST, f"{directory}: the directory is not empty")


def _remove(directory: Path, claim: Path, made: bool) -> None:
    """Remove all that is in a directory, `claim` at last, and the directory if it was made."""
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path != claim:
            with suppress(OSError):
                path.unlink()
    with suppress(OSError):
        claim.unlink()
        if made:
            directory.rmdir()


def check_room(directory: Path, needed: int) -> None:
    """Raise BackupError(ENOSPC) unless the disk of `directory` has room for `needed` bytes."""
    free = shutil.disk_usage(directory).free
    if free < needed:
        text = f"{directory}: {needed} bytes are needed, the disk has room for {free}"
        raise BackupError(Errno.ENOSPC, text)


def copy_file(source: Path, target: Path) -> None:
    """Copy the file as long as it is now; copy nothing if it has gone meanwhile."""
    try:
        reading = open(source, "rb", opener=opener)  # noqa: SIM115
    except FileNotFoundError:
        return
    with reading, _new_file(target) as writing:
        left = os.fstat(reading.fileno()).st_size
        while left > 0 and (chunk := reading.read(min(left, CHUNK_BYTES))):
            _write(writing, chunk, target)
            left -= len(chunk)
        os.fsync(writing)


def write_file(target: Path, data: bytes) -> None:
    """Write a new file."""
    with _new_file(target) as writing:
        _write(writing, data, target)
        os.fsync(writing)


def copy_tree(source: Path, target: Path, without: tuple[str, ...] = ()) -> None:
    """Copy the regular files of a directory and of those beneath it, but those named `without`."""
    make_directory(target)
    for path in sorted(source.iterdir()):
        if path.name in without:
            continue
        if path.is_dir():
            copy_tree(path, target / path.name)
        elif path.is_file():
            copy_file(path.resolve(), target / path.name)  # a plugin may be a link
    sync_directory(target)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable; its files are durable by themselves."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _new_file(target: Path) -> Iterator[int]:
    """Open a new file that only this user can read, as a descriptor."""
    descriptor = open_private(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
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


# --- the mark


class Mark(msgspec.Struct, frozen=True):
    """Of which state directory the backup is, and of when, in seconds since the Unix epoch."""

    statedir: str
    time: float
    version: str  # of flux-trio


def read_mark(backup: Path) -> Mark:
    """Return the mark of a backup. Raises BackupError if the directory is no complete backup."""
    path = backup / BACKUP_FILE
    try:
        if data := path.read_bytes():
            return msgspec.json.decode(data, type=Mark)
        text = f"{backup}: not a complete backup: its {BACKUP_FILE} is empty"
        raise BackupError(Errno.EINVAL, text)
    except (FileNotFoundError, NotADirectoryError):
        text = f"{backup}: not a complete backup: there is no {BACKUP_FILE} in it"
        raise BackupError(Errno.ENOENT, text) from None
    except msgspec.DecodeError as error:
        raise BackupError(Errno.EINVAL, str(FormatError.of_msgspec(error).at(str(path)))) from None
