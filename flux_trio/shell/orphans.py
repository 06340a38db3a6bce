"""Processes of jobs that left their task: daemons, and other children with a session of their own.

The host is a subreaper (prctl(2)): a process whose parent has ended becomes the host's child. So
the remaining processes of a job whose tasks have ended are children of the host, or their children.
The job of an orphan is found by, in this order,

- the mark in the environment with which it was executed,
- its session or process group, if it is that of a task,
- its standard output and error, if they are files of a task,
- its start time, if only one running job is as old.

If a host is killed, init gets its orphans. The next host finds them only by the mark.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from flux_trio.process.proc import PROC, process_ids
from flux_trio.shell.protocol import JOBS_NAME

MARK_VARIABLE: Final = "FLUX_TRIO_SHELL"
TASK_VARIABLE: Final = "FLUX_TASK_RANK"
ENDED: Final = ("Z", "X")  # states of processes that use no resources any more
_SET_CHILD_SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
# errors of /proc for a process that has ended, or that belongs to another user
_HIDDEN: Final = (errno.ENOENT, errno.ESRCH, errno.EACCES, errno.EPERM)
_READ_BYTES: Final = 1 << 16


class Status(NamedTuple):
    """Fields of /proc/PID/stat."""

    state: str  # a letter; Z is a zombie
    parent: int
    group: int
    session: int
    starttime: int  # clock ticks since boot


def become_subreaper() -> bool:
    """Make orphaned descendants children of this process; return whether the kernel can."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def status_of(pid: int) -> Status | None:
    """Return the status of `pid`, or None if it has gone. Raises OSError if unreadable now."""
    fields = _read(PROC / str(pid) / "stat").rpartition(b")")[2].split()
    if not fields:
        return None
    return Status(fields[0].decode(), *(int(fields[place]) for place in (1, 2, 3, 19)))


def name_of_host(directory: Path) -> str:
    """Return the name of a directory's host in marks and in names of cgroups."""
    status = directory.stat()
    return f"{status.st_dev:x}-{status.st_ino:x}"


class Orphans:
    """Finds the job of a process, among the jobs of one shell host's directory."""

    def __init__(self, directory: Path) -> None:
        self._host = name_of_host(directory)
        self._output = f"{(directory / JOBS_NAME).resolve()}/"
        self._children: int | None = None  # a file that stays open, since descriptors may run out
        with suppress(FileNotFoundError):  # a kernel without CONFIG_PROC_CHILDREN
            self._children = os.open(
                PROC / "self" / "task" / str(os.getpid()) / "children", os.O_RDONLY | os.O_CLOEXEC
            )
        inherited = os.environ.get(MARK_VARIABLE, "").split()
        # the job in which this host's instance runs, if it is inside a job
        outer = [each for each in inherited if not each.startswith(f"{self._host}.")]
        self._mark = " ".join([*outer, f"{self._host}."])

    def mark(self, jobid: int) -> dict[str, str]:
        """Return the environment variable that marks a task and its descendants."""
        return {MARK_VARIABLE: f"{self._mark}{jobid}"}

    def children(self) -> list[int]:
        """Return the children of this process: tasks and orphans."""
        if self._children is None:
            me = os.getpid()
            return [
                pid for pid in process_ids() if (found := status_of(pid)) and found.parent == me
            ]
        text = b""
        while part := os.pread(self._children, _READ_BYTES, len(text)):
            text += part
        return list(map(int, text.split()))

    def marked(self) -> dict[int, int]:
        """Return the job of each process on this machine that has a mark of this directory."""
        me = os.getpid()
        found = ((pid, self._marked_job(pid)) for pid in process_ids() if pid != me)
        return {pid: jobid for pid, jobid in found if jobid is not None}

    def tasks_of(self, jobid: int, ntasks: int) -> set[int]:
        """Return the tasks of a job of which a process is alive; all if that is not sure of one.

        A process of an instance in the job has the variables of the instance's own job.
        """
        tasks = set()
        for pid, owner in self.marked().items():
            if owner != jobid or not _is_alive(pid):
                continue
            task = _variable(pid, TASK_VARIABLE)
            is_inner = not _variable(pid, MARK_VARIABLE).endswith(f"{self._host}.{jobid}")
            if is_inner or not task.isdecimal() or int(task) >= ntasks:
                return set(range(ntasks))
            tasks.add(int(task))
        return tasks

    def job_of(self, pid: int, status: Status, tasks: Mapping[int, int]) -> int | None:
        """Return the job of an orphan, or None if unknown; `tasks` maps task pids to jobs."""
        jobid = self._marked_job(pid)
        for leader in (status.session, status.group):
            jobid = tasks.get(leader) if jobid is None else jobid
        return self._job_of_output(pid) if jobid is None else jobid

    def _marked_job(self, pid: int) -> int | None:
        for mark in _variable(pid, MARK_VARIABLE).split():
            host, _, jobid = mark.rpartition(".")
            if host == self._host and jobid.isdecimal():
                return int(jobid)
        return None

    def _job_of_output(self, pid: int) -> int | None:
        for descriptor in (1, 2):
            try:
                target = str((PROC / str(pid) / "fd" / str(descriptor)).readlink())
            except OSError as error:
                if error.errno not in _HIDDEN:
                    raise
                continue
            jobid = target.removeprefix(self._output).partition(".")[0]
            if target.startswith(self._output) and jobid.isdecimal():
                return int(jobid)
        return None


def _variable(pid: int, name: str) -> str:
    """Return a variable with which a process was executed; "" without it."""
    begin = name.encode() + b"="
    for variable in _read(PROC / str(pid) / "environ").split(b"\0"):
        if variable.startswith(begin):
            return variable[len(begin) :].decode(errors="replace")
    return ""


def _is_alive(pid: int) -> bool:
    status = status_of(pid)
    return status is not None and status.state not in ENDED


def _read(path: Path) -> bytes:
    """Read a file of /proc; b"" if the process has ended or is another user's. Raises OSError."""
    try:
        return path.read_bytes()
    except OSError as error:
        if error.errno not in _HIDDEN:  # for example, no free descriptor
            raise
        return b""
