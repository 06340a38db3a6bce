"""Directories and files that belong to this user alone, whatever the umask.

A file is opened below the descriptor of its directory, and never through a link. So nobody who may
write elsewhere can put another file in its place. A FIFO, a socket or a device in the place of a
file is an error: opening it could wait for ever. A new file has the mode FILE_MODE, a new
directory DIRECTORY_MODE: the umask decides only about files that a user names.

`foreign` says why a file is not this user's: it has another owner, or others may write to it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
PARENT_MODE: Final = 0o755  # of a directory above; the umask decides who else may look into it

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_ENTER: Final = stat.S_IXGRP | stat.S_IXOTH
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_CHUNK_BYTES: Final = 1 << 20
_EXPECTED: Final = {
    errno.ELOOP: "expected no link",
    errno.ENXIO: "expected a file, got a FIFO, a socket or a device",
}
_ROOT: Final = 0


class PrivateDirectory:
    """A directory of this user that is held open. The methods raise OSError with the whole path."""

    def __init__(self, path: Path | str, descriptor: int) -> None:
        self.path = str(path)
        self.descriptor = descriptor

    def open(self, name: str, flags: int) -> int:
        """Open the file `name`; one that is made, or that may be made, gets FILE_MODE."""
        with self._naming(name):
            safely = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags | safely, FILE_MODE, dir_fd=self.descriptor)
            with ExitStack() as undo:
                undo.callback(os.close, descriptor)
                mode = os.fstat(descriptor).st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
                os.set_blocking(descriptor, not flags & os.O_NONBLOCK)
                if flags & os.O_CREAT:
                    os.fchmod(descriptor, FILE_MODE)  # the umask may have taken more away
                undo.pop_all()
            return descriptor

    def enter(self, name: str) -> PrivateDirectory:
        """Open the directory `name`, which must be this user's alone to write."""
        with self._naming(name):
            descriptor = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self.descriptor)
            with ExitStack() as undo:
                undo.callback(os.close, descriptor)
                if reason := _reason(os.fstat(descriptor), (os.getuid(),)):
                    raise PermissionError(errno.EPERM, reason)
                undo.pop_all()
        return PrivateDirectory(f"{self.path}/{name}", descriptor)

    def make(self, name: str) -> PrivateDirectory:
        """Open the directory `name` as `enter` does; make it if it is missing."""
        with self._naming(name), suppress(FileExistsError):
            os.mkdir(name, DIRECTORY_MODE, dir_fd=self.descriptor)
            set_mode(name, DIRECTORY_MODE, self.descriptor)
        return self.enter(name)

    def read(self, name: str) -> bytes:
        descriptor = self.open(name, os.O_RDONLY)
        try:
            with self._naming(name):
                return b"".join(iter(lambda: os.read(descriptor, _CHUNK_BYTES), b""))
        finally:
            os.close(descriptor)

    def is_at(self, path: Path | str) -> bool:
        """Return whether `path` leads to this directory. Raises OSError."""
        return os.path.samestat(os.stat(path), os.fstat(self.descriptor))  # noqa: PTH116

    def names(self) -> list[str]:
        """Return the names in the directory."""
        return os.listdir(f"/proc/self/fd/{self.descriptor}")  # noqa: PTH208 - it has no path

    def unlink(self, name: str) -> None:
        """Remove the file `name`, if it is there."""
        with self._naming(name), suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def close(self) -> None:
        os.close(self.descriptor)

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            text = _EXPECTED.get(error.errno or 0, error.strerror)
            raise OSError(error.errno, text, f"{self.path}/{name}") from None


@contextmanager
def private_directory(path: Path | str, *names: str) -> Iterator[PrivateDirectory]:
    """Yield the directory `names` below `path`. Raises OSError.

    The user has named `path`, so it may be a link; each of `names` is entered as `enter` does.
    """
    directory = open_directory(path, *names)
    try:
        yield directory
    finally:
        directory.close()


def open_directory(path: Path | str, *names: str) -> PrivateDirectory:
    """Return what `private_directory` yields; the caller closes it."""
    directory = PrivateDirectory(path, os.open(path, _DIRECTORY))
    for name in names:
        above = directory
        try:
            directory = above.enter(name)
        finally:
            above.close()
    return directory


def open_private(path: Path, flags: int) -> int:
    """Open a file as `PrivateDirectory.open` does. Raises OSError."""
    with private_directory(path.parent) as directory:
        return directory.open(path.name, flags)


def opener(path: str, flags: int) -> int:
    """Open a file as `open_private` does; for the built-in `open`."""
    return open_private(Path(path), flags)


def making_private(path: str, flags: int) -> int:
    """Open a file that the user has named, made for this user alone; for the built-in `open`."""
    return os.open(path, flags, FILE_MODE)


def read_private(path: Path) -> bytes:
    """Return the content of a file, which is not read through a link. Raises OSError."""
    with private_directory(path.parent) as directory:
        return directory.read(path.name)


def make_directory(path: Path) -> bool:
    """Make a directory for this user alone, and those above it; return False if it was there.

    Nobody else may write to those above it either. Raises OSError.
    """
    for parent in [each for each in reversed(path.parents) if not each.exists()]:
        with suppress(FileExistsError):
            parent.mkdir(PARENT_MODE)
            parent.chmod(stat.S_IMODE(parent.stat().st_mode) | DIRECTORY_MODE)
    try:
        path.mkdir(DIRECTORY_MODE)
    except FileExistsError:
        if not path.is_dir():
            raise
        return False
    path.chmod(DIRECTORY_MODE)
    return True


def set_mode(name: str, mode: int, directory: int) -> None:
    """Set the mode of what `name` is below the descriptor of a directory, if it is no link."""
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        # chmod(2) of a descriptor that was opened by O_PATH works by this name only
        os.chmod(f"/proc/self/fd/{descriptor}", mode)  # noqa: PTH101
    finally:
        os.close(descriptor)


# Whose a file is


def foreign(path: Path) -> str:
    """Return why `path`, a file or directory, is not this user's alone to write; "" if it is.

    The path is not followed if it is a link. Raises OSError.
    """
    return _reason(path.lstat(), (os.getuid(),))


def foreign_below(path: Path, *, named_by_user: bool = False) -> str:
    """Return which file is not this user's alone to write, and why: `path` or one below it; or "".

    Modes that let others only read are taken away. If the user has put files there, nothing is
    taken away, and they may be links. Raises OSError.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:  # somebody has removed it meanwhile
        return ""
    if stat.S_ISLNK(status.st_mode) and named_by_user:
        return ""
    if reason := _reason(status, (os.getuid(),)):
        return f"{path}: {reason}"
    is_socket = stat.S_ISSOCK(status.st_mode)
    if status.st_mode & _OTHERS and not (is_socket or named_by_user):
        path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
    if stat.S_ISDIR(status.st_mode):
        for each in sorted(path.iterdir()):
            if found := foreign_below(each, named_by_user=named_by_user):
                return found
    return ""


def untrusted(path: Path, *, imports: bool = False) -> str:
    """Return why this user should not execute or obey the file at `path`; "" for no reason.

    The file, and the directory that it is in, belong to this user, to root, or to the owner of this
    program; and nobody else may write to them, or can reach them to do so. In a directory like /tmp
    others can put new files, so that one will not do for a file that `imports` what is beside it.
    A pipe or device is what the user has made of it. Raises OSError.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        return ""
    path = path.resolve()
    owners = (os.getuid(), _ROOT, Path(__file__).stat().st_uid)
    for each in (path, path.parent):
        status = each.stat()
        is_kept = not imports and each != path and bool(status.st_mode & stat.S_ISVTX)
        reason = _reason(status, owners)
        if reason and not (status.st_uid in owners and (is_kept or _is_out_of_reach(each))):
            return f"{each}: {reason}"
    return ""


def _is_out_of_reach(path: Path) -> bool:
    """Return whether a directory of this user above `path` lets nobody else in."""
    return any(
        status.st_uid == os.getuid() and not status.st_mode & _OTHERS_ENTER
        for status in map(Path.stat, path.parents)
    )


def _reason(status: os.stat_result, owners: Collection[int]) -> str:
    if status.st_uid not in owners:
        return "belongs to another user"
    if stat.S_ISLNK(status.st_mode):
        return "is a link: remove it"
    if status.st_mode & _OTHERS_WRITE and not stat.S_ISSOCK(status.st_mode):
        return "others may write in it: chmod go-w"
    return ""
