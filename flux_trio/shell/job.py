"""One job of the shell host in memory: its processes, and the contents of its record."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import Final

from flux_trio.shell.labels import LabeledOutput
from flux_trio.shell.pmi import PmiServer
from flux_trio.shell.protocol import STREAMS, Failure, FirstExit, TaskSize
from flux_trio.shell.records import Accepted, Ended, Failed, FileSum, Launched, Line, Written

# wait(2) statuses, with the exit codes of a POSIX shell, and 1 if the status is not known
STATUS_NOT_FOUND: Final = 127 << 8
STATUS_NOT_EXECUTED: Final = 126 << 8
STATUS_LOST: Final = 1 << 8


class Process:
    """A running task: a child of this host, or of an earlier host (`child` is None)."""

    __slots__ = ("child", "job", "pid", "starttime", "taskid")

    def __init__(
        self,
        job: ShellJob,
        taskid: int,
        pid: int,
        starttime: int,
        child: subprocess.Popen[bytes] | None,
    ) -> None:
        self.job = job
        self.taskid = taskid
        self.pid = pid
        self.starttime = starttime
        self.child = child

    def signal(self, signum: int) -> None:
        """Send `signum` to its process group, unless the process has gone.

        A child keeps its id until it is reaped; the id of another process may be in use again.
        """
        if self.child is not None or start_time(self.pid) == self.starttime:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signum)


class ShellJob:
    """One job, folded from the lines of its record."""

    __slots__ = (
        "damage",
        "emptied",
        "failure",
        "first_exit",
        "id",
        "is_adopted",
        "is_clearing",
        "is_waiting",
        "labels",
        "launched_at",
        "ntasks",
        "pids",
        "pmi",
        "running",
        "statuses",
        "written",
    )

    def __init__(self, jobid: int) -> None:
        self.id = jobid
        self.is_adopted = False  # an earlier host launched it
        self.is_clearing = False  # its tasks have ended, their remaining processes are being killed
        self.is_waiting = False  # some tasks are launched; a shortage delays the next
        self.emptied: set[str] = set()  # the job's output files that were truncated
        self.labels: LabeledOutput | None = None  # of a job that wants labels in its files
        self.launched_at = 0  # start of its first task, in clock ticks since boot
        self.ntasks = 0
        self.pids: list[int] = []  # of all its tasks
        self.pmi: PmiServer | None = None  # of a job that this host has launched
        self.running: dict[int, Process] = {}
        self.statuses: dict[int, int | None] = {}
        self.failure: Failure | None = None
        self.first_exit: FirstExit | None = None
        self.written: list[FileSum] | None = None  # set when its last process has ended
        self.damage: list[str] = []  # what is wrong with its files

    def apply(self, line: Line) -> None:
        """Fold in one line of the record."""
        match line:
            case Accepted(ntasks):
                self.ntasks = ntasks
            case Launched(taskid, pid, starttime):
                self.running[taskid] = Process(self, taskid, pid, starttime, None)
                self.pids.append(pid)
                self.launched_at = self.launched_at or starttime
            case Failed(taskid, status, text):
                self.statuses[taskid] = status
                self.failure = Failure(taskid, text)
            case Ended(taskid, status):
                self.running.pop(taskid, None)
                self.statuses[taskid] = status
                self.first_exit = self.first_exit or _exit_of(self.id, taskid, status)
            case Written(files):
                self.written = files

    @property
    def is_over(self) -> bool:
        """Whether no process runs and no task will be launched, as far as this host knows."""
        return not self.has_process and not self.is_waiting

    @property
    def has_process(self) -> bool:
        """Whether a process of the job runs, as far as this host knows."""
        return bool(self.running) or self.is_clearing

    @property
    def missing(self) -> list[int]:
        """The tasks that were neither launched nor failed to launch, in ascending order."""
        return sorted(set(range(self.ntasks)) - self.running.keys() - self.statuses.keys())

    def sizes(self) -> list[TaskSize]:
        """Return how much each task has written, without those that have written nothing."""
        found = {(each.taskid, each.stream): each.size for each in self.written or ()}
        return [
            TaskSize(taskid, *(found.get((taskid, stream), 0) for stream in STREAMS))
            for taskid in sorted({taskid for taskid, _ in found})
        ]

    @property
    def status(self) -> int:
        """The wait(2) status of the job's shell (readings: finish status)."""
        return max(map(_of_shell, self.statuses.values()), default=STATUS_LOST)

    @property
    def lost(self) -> list[int]:
        """The tasks whose wait status is unknown, in ascending order."""
        return sorted(taskid for taskid, status in self.statuses.items() if status is None)


def _of_shell(status: int | None) -> int:
    """Return the status of a shell whose task has this one: a signal N makes it exit with 128+N."""
    if status is None:
        return STATUS_LOST
    return (128 + os.WTERMSIG(status)) << 8 if os.WIFSIGNALED(status) else status


def _exit_of(jobid: int, taskid: int, status: int | None) -> FirstExit:
    if status is None:
        how = ""
    elif os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        how = signal.strsignal(number) or f"signal {number}"
    else:
        how = f"Exit {os.waitstatus_to_exitcode(status)}"
    return FirstExit(jobid, taskid, _of_shell(status), how)


def start_time(pid: int) -> int | None:
    """Return when process `pid` started, in clock ticks since boot; None if it has gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:  # noqa: PTH123 - a Path is slow
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[19])
