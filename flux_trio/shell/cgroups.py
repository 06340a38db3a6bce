"""Control groups of version 2 (cgroups(7)): the cgroup of this process, and those beneath it.

A cgroup is a directory. No controller is enabled, so a cgroup that has child cgroups may also hold
processes.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

KILL: Final = "cgroup.kill"  # since Linux 5.14
_PROCESSES: Final = "cgroup.procs"
_FREEZE: Final = "cgroup.freeze"
_EVENTS: Final = "cgroup.events"
# What a process can change in a cgroup without controllers, as it is in a new one. It cannot become
# threaded beside a cgroup with processes, such as that of the host.
_NEW: Final = (
    (_EVENTS, (b"populated 0\nfrozen 0\n",)),
    ("cgroup.controllers", (b"",)),
    ("cgroup.max.depth", (b"max\n",)),
    ("cgroup.max.descendants", (b"max\n",)),
    ("cgroup.pressure", (b"1\n", b"")),  # since Linux 6.1
)
_LINKS_WITHOUT_CHILD: Final = 2
_PROC: Final = Path("/proc/self")
_READ_BYTES: Final = 1 << 16
# errors for a cgroup that is being removed, and for a threaded cgroup
_HIDDEN: Final = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)


def own_cgroup() -> Path | None:
    """Return the cgroup of this process, or None if it is not mounted here."""
    for line in (_PROC / "cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return _directory_of(PurePosixPath(line.removeprefix("0::")))
    return None


def enter(cgroup: Path) -> None:
    """Move this process with all threads into `cgroup`; takes milliseconds. Raises OSError."""
    _write(cgroup / _PROCESSES, b"0")


def is_populated(cgroup: Path) -> bool:
    """Return whether a process is in `cgroup` or beneath it. Raises OSError if unreadable now."""
    return b"populated 1" in _read(cgroup / _EVENTS)


def is_as_new(cgroup: Path) -> bool:
    """Whether `cgroup` is like one that this process has just made, so that it can be used again.

    It is empty, has no child, and belongs to this user. All settings are those of a new one; a
    cgroup with controllers has more of them and is never as new.
    """
    try:
        status = os.stat(cgroup)  # noqa: PTH116 - as below
        return (
            status.st_nlink == _LINKS_WITHOUT_CHILD
            and _is_ours(status)
            and _is_ours(os.stat(f"{cgroup}/{_PROCESSES}"))  # noqa: PTH116 - a Path is slow
            and all(_read(f"{cgroup}/{name}") in contents for name, contents in _NEW)
        )
    except OSError:
        return False


def processes_in(cgroup: Path) -> list[int]:
    """Return the live processes in `cgroup` and beneath it. Raises OSError."""
    found = []
    for directory, _, _ in os.walk(cgroup):
        found += list(map(int, _read(Path(directory, _PROCESSES)).split()))
    return found


def kill_all(cgroup: Path) -> None:
    """SIGKILL all processes in `cgroup` and beneath it, of every user. Raises OSError.

    Without `cgroup.kill` the processes are killed one by one; they are frozen first, so that they
    cannot fork.
    """
    with suppress(FileNotFoundError):
        _write(cgroup / KILL, b"1")
        return
    with suppress(FileNotFoundError):  # the file exists since Linux 5.2
        _write(cgroup / _FREEZE, b"1")
    for pid in processes_in(cgroup):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with suppress(FileNotFoundError):
        _write(cgroup / _FREEZE, b"0")


def remove(cgroup: Path) -> bool:
    """Remove `cgroup` and all beneath it; return False if a process is still there."""
    with suppress(OSError):  # EBUSY also means that it has child cgroups
        cgroup.rmdir()
        return True
    for directory, _, _ in os.walk(cgroup, topdown=False):
        with suppress(OSError):
            Path(directory).rmdir()
    return not cgroup.exists()


def _directory_of(path: PurePosixPath) -> Path | None:
    """Return the directory of a cgroup; `path` begins at the root of this cgroup namespace."""
    for line in (_PROC / "mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 ") and ".." not in path.parts:
            root, place = mount.split()[3:5]
            if path.is_relative_to(root):
                return Path(place, path.relative_to(root))
    return None


def _is_ours(status: os.stat_result) -> bool:
    """Return whether a file belongs to this process's user, and others cannot write it."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _read(path: Path | str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a third of Path.read_bytes
        try:
            return b"".join(iter(lambda: os.read(descriptor, _READ_BYTES), b""))
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _HIDDEN:
            raise
        return b""


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
