"""Processes of jobs that left their task: daemons, and other children with a session of their own.

The host is a subreaper (prctl(2)): a process whose parent has ended becomes the host's child. So
what is left of a job whose tasks have ended are children of the host, and children of those. An
orphan's job is told by, in this order,

- the mark in its environment, as the process was executed with it,
- its session or process group, which is that of a task,
- its standard output and error, which are files of a task,
- the time when it started, if only one running job is as old.

A host that was killed leaves its orphans to init. The next one finds those by the mark alone.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from flux_trio.shell.protocol import JOBS_NAME

MARK_VARIABLE: Final = "FLUX_TRIO_SHELL"
_SET_CHILD_SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
# errors of /proc for a process that has ended, or that is another user's
_HIDDEN: Final = (errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM)
_READ_BYTES: Final = 1 << 16
_PROC: Final = Path("/proc")


class Status(NamedTuple):
    """What /proc/PID/stat says of a process."""

    state: str  # a letter; Z is a zombie
    parent: int
    group: int
    session: int
    starttime: int  # clock ticks since boot


def become_subreaper() -> bool:
    """Let orphaned descendants become children of this process; whether the kernel does so."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def status_of(pid: int) -> Status | None:
    """How process `pid` is; None when there is none. OSError: this cannot be told now."""
    fields = _read(_PROC / str(pid) / "stat").rpartition(b")")[2].split()
    if not fields:
        return None
    return Status(fields[0].decode(), *(int(fields[place]) for place in (1, 2, 3, 19)))


def name_of_host(directory: Path) -> str:
    """What the host of a directory is called in marks and in names of cgroups."""
    status = directory.stat()
    return f"{status.st_dev:x}-{status.st_ino:x}"


class Orphans:
    """Tells which job a process belongs to, among those of one shell host's directory."""

    def __init__(self, directory: Path) -> None:
        self._host = name_of_host(directory)
        self._output = f"{(directory / JOBS_NAME).resolve()}/"
        self._children: int | None = None  # a file that stays open: descriptors may run out
        with suppress(FileNotFoundError):  # a kernel without CONFIG_PROC_CHILDREN
            self._children = os.open(
                _PROC / "self" / "task" / str(os.getpid()) / "children", os.O_RDONLY | os.O_CLOEXEC
            )
        inherited = os.environ.get(MARK_VARIABLE, "").split()
        # the job that this host runs in, if it is that of an instance in a job
        outer = [each for each in inherited if not each.startswith(f"{self._host}.")]
        self._mark = " ".join([*outer, f"{self._host}."])

    def mark(self, jobid: int) -> dict[str, str]:
        """What a task has in its environment, and its children with it."""
        return {MARK_VARIABLE: f"{self._mark}{jobid}"}

    def children(self) -> list[int]:
        """The children of this process: tasks, and orphans of those."""
        if self._children is None:
            me = os.getpid()
            return [pid for pid in _processes() if (found := status_of(pid)) and found.parent == me]
        text = b""
        while part := os.pread(self._children, _READ_BYTES, len(text)):
            text += part
        return list(map(int, text.split()))

    def marked(self) -> dict[int, int]:
        """The job of each process on this machine that bears a mark of this directory."""
        me = os.getpid()
        found = ((pid, self._marked_job(pid)) for pid in _processes() if pid != me)
        return {pid: jobid for pid, jobid in found if jobid is not None}

    def job_of(self, pid: int, status: Status, tasks: Mapping[int, int]) -> int | None:
        """The job of an orphan; None when nothing tells. `tasks` has the job of each task's pid."""
        jobid = self._marked_job(pid)
        for leader in (status.session, status.group):
            jobid = tasks.get(leader) if jobid is None else jobid
        return self._job_of_output(pid) if jobid is None else jobid

    def _marked_job(self, pid: int) -> int | None:
        name = MARK_VARIABLE.encode() + b"="
        for variable in _read(_PROC / str(pid) / "environ").split(b"\0"):
            if variable.startswith(name):
                for mark in variable[len(name) :].decode(errors="replace").split():
                    host, _, jobid = mark.rpartition(".")
                    if host == self._host and jobid.isdecimal():
                        return int(jobid)
        return None

    def _job_of_output(self, pid: int) -> int | None:
        for descriptor in (1, 2):
            try:
                target = str((_PROC / str(pid) / "fd" / str(descriptor)).readlink())
            except OSError as error:
                if error.errno not in _HIDDEN:
                    raise
                continue
            jobid = target.removeprefix(self._output).partition(".")[0]
            if target.startswith(self._output) and jobid.isdecimal():
                return int(jobid)
        return None


def _processes() -> Iterator[int]:
    return (int(path.name) for path in _PROC.iterdir() if path.name.isdecimal())


def _read(path: Path) -> bytes:
    """What /proc has of a process; nothing of one that has ended, or is another user's. OSError."""
    try:
        return path.read_bytes()
    except OSError as error:
        if error.errno not in _HIDDEN:  # no descriptor is free, for instance
            raise
        return b""
