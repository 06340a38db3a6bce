"""Control groups of version 2 (cgroups(7)): which one this process is in, and those beneath it.

A cgroup is a directory. No controller is enabled, so a cgroup with others beneath it may hold
processes, too.
"""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

KILL: Final = "cgroup.kill"  # since Linux 5.14
_PROCESSES: Final = "cgroup.procs"
_FREEZE: Final = "cgroup.freeze"
_EVENTS: Final = "cgroup.events"
_PROC: Final = Path("/proc/self")
# of a cgroup that is being removed, and of one that manages threads one by one
_HIDDEN: Final = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)


def own_cgroup() -> Path | None:
    """The cgroup that this process is in; None where it cannot be seen."""
    for line in (_PROC / "cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return _directory_of(PurePosixPath(line.removeprefix("0::")))
    return None


def enter(cgroup: Path) -> None:
    """Move this process, with all its threads, into `cgroup`; it takes milliseconds. OSError."""
    _write(cgroup / _PROCESSES, b"0")


def is_populated(cgroup: Path) -> bool:
    """Whether a process is in `cgroup` or beneath it. OSError: that cannot be told now."""
    return b"populated 1" in _read(cgroup / _EVENTS)


def processes_in(cgroup: Path) -> list[int]:
    """The processes in `cgroup` and beneath it that have not ended. OSError."""
    found = []
    for directory, _, _ in os.walk(cgroup):
        found += list(map(int, _read(Path(directory, _PROCESSES)).split()))
    return found


def kill_all(cgroup: Path) -> None:
    """SIGKILL what is in `cgroup` and beneath it, whoever it belongs to. OSError.

    Without `cgroup.kill` processes have to be killed one by one; frozen, they do not multiply.
    """
    with suppress(FileNotFoundError):
        _write(cgroup / KILL, b"1")
        return
    with suppress(FileNotFoundError):  # there is none before Linux 5.2
        _write(cgroup / _FREEZE, b"1")
    for pid in processes_in(cgroup):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with suppress(FileNotFoundError):
        _write(cgroup / _FREEZE, b"0")


def remove(cgroup: Path) -> bool:
    """Remove `cgroup` and what is beneath it; False while a process is there."""
    with suppress(OSError):  # EBUSY, which also says that others are beneath it
        cgroup.rmdir()
        return True
    for directory, _, _ in os.walk(cgroup, topdown=False):
        with suppress(OSError):
            Path(directory).rmdir()
    return not cgroup.exists()


def _directory_of(path: PurePosixPath) -> Path | None:
    """Where a cgroup is mounted; `path` begins at the root of this process's cgroup namespace."""
    for line in (_PROC / "mountinfo").read_text().splitlines():
        mount, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 ") and ".." not in path.parts:
            root, place = mount.split()[3:5]
            if path.is_relative_to(root):
                return Path(place, path.relative_to(root))
    return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
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
