"""Find and SIGKILL the processes that remain when the tasks of a job have ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from flux_trio.console import STDERR
from flux_trio.shell.orphans import Orphans, Status, status_of

if TYPE_CHECKING:
    from flux_trio.shell.job import ShellJob

_ENDED: Final = ("Z", "X")  # states of processes that use no resources any more


class Leftovers:
    """The processes of `jobs`, the host's table, that are not tasks.

    `tasks` has the job of each task's process id, including tasks that have ended.
    """

    def __init__(
        self, orphans: Orphans, jobs: Mapping[int, ShellJob], tasks: Mapping[int, int]
    ) -> None:
        self._orphans = orphans
        self._jobs = jobs
        self._tasks = tasks
        self._spared: set[tuple[int, int]] = set()  # (pid, start time): SIGKILL was refused

    def kill(self, job: ShellJob, running: Collection[int]) -> list[int]:
        """Kill the remaining processes of `job`, whose tasks have ended; return those to wait for.

        `running` are the process ids of tasks. Processes of earlier jobs are killed as well, in
        case an earlier search missed them. Raises OSError if the search cannot be made now.
        """
        left = []
        for pid, status, owner in self._found(job, running):
            if owner != job.id and not self._is_over(owner):
                continue
            if self._kill(pid, status) and owner == job.id:
                left.append(pid)
        return left

    def kill_earlier(self) -> set[int]:
        """Kill processes of an earlier host's ended jobs; return these jobs. Raises OSError."""
        jobids = set()
        for pid, jobid in self._orphans.marked().items():
            status = status_of(pid)
            if status is not None and self._is_over(jobid):
                self._kill(pid, status)
                jobids.add(jobid)
        return jobids

    def _found(self, job: ShellJob, running: Collection[int]) -> list[tuple[int, Status, int]]:
        """Return each process that is not a task and whose job is known, its status and job.

        When such a process ends, its children become the host's, and a later search finds them.
        """
        found = []
        for pid in self._orphans.children():
            if pid in running:
                continue
            status = status_of(pid)
            if status is not None and status.state not in _ENDED:
                owner = self._orphans.job_of(pid, status, self._tasks)
                if owner is None and not self._may_be_anothers(status):
                    owner = job.id
                if owner is not None:
                    found.append((pid, status, owner))
        if job.is_adopted:  # processes of its tasks are not children of this host
            for pid, owner in self._orphans.marked().items():
                status = status_of(pid)
                if status is None or status.state in _ENDED:
                    continue
                if owner == job.id and pid not in running:
                    found.append((pid, status, owner))
        return [each for each in found if (each[0], each[1].starttime) not in self._spared]

    def _may_be_anothers(self, status: Status) -> bool:
        """Whether a process without a mark may belong to a running job."""
        jobs = self._jobs.values()
        return any(job.running and job.launched_at <= status.starttime for job in jobs)

    def _is_over(self, jobid: int) -> bool:
        job = self._jobs.get(jobid)
        return job is None or not job.running

    def _kill(self, pid: int, status: Status) -> bool:
        """Send SIGKILL; return whether the process will end."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        except PermissionError:
            STDERR.write(f"cannot kill process {pid}: it belongs to another user")
            self._spared.add((pid, status.starttime))
            return False
        return True
