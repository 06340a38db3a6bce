"""What jobs leave behind when their tasks have ended: found, and ended by SIGKILL."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from flux_trio.console import STDERR
from flux_trio.shell.orphans import Orphans, Status, status_of

if TYPE_CHECKING:
    from flux_trio.shell.job import ShellJob

_ENDED: Final = ("Z", "X")  # states of processes that use nothing any more


class Leftovers:
    """The processes of `jobs`, the host's table, that are not tasks.

    `tasks` has the job of each process id that was a task's, also of tasks that have ended.
    """

    def __init__(
        self, orphans: Orphans, jobs: Mapping[int, ShellJob], tasks: Mapping[int, int]
    ) -> None:
        self._orphans = orphans
        self._jobs = jobs
        self._tasks = tasks
        self._spared: set[tuple[int, int]] = set()  # (pid, start time): SIGKILL was refused

    def kill(self, job: ShellJob, running: Collection[int]) -> list[int]:
        """Kill what is left of `job`, whose tasks have ended; returns what has to be awaited.

        `running` are the ids of processes that are tasks. What a job before it has left is killed
        as well, in case its processes were quicker than the search for them.

        OSError: the search cannot be made now, so that something may be left.
        """
        left = []
        for pid, status, owner in self._found(job, running):
            if owner != job.id and not self._is_over(owner):
                continue
            if self._kill(pid, status) and owner == job.id:
                left.append(pid)
        return left

    def kill_earlier(self) -> set[int]:
        """Kill what an earlier host left of jobs that have ended; returns those jobs. OSError."""
        jobids = set()
        for pid, jobid in self._orphans.marked().items():
            status = status_of(pid)
            if status is not None and self._is_over(jobid):
                self._kill(pid, status)
                jobids.add(jobid)
        return jobids

    def _found(self, job: ShellJob, running: Collection[int]) -> list[tuple[int, Status, int]]:
        """Every process that is no task and has a known job, how it is, and that job.

        The children of a process that is found become the host's when it has ended.
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
        if job.is_adopted:  # what its tasks left is no child of this host
            for pid, owner in self._orphans.marked().items():
                status = status_of(pid)
                if status is None or status.state in _ENDED:
                    continue
                if owner == job.id and pid not in running:
                    found.append((pid, status, owner))
        return [each for each in found if (each[0], each[1].starttime) not in self._spared]

    def _may_be_anothers(self, status: Status) -> bool:
        """Whether a process without any mark may be of a job that runs."""
        jobs = self._jobs.values()
        return any(job.running and job.launched_at <= status.starttime for job in jobs)

    def _is_over(self, jobid: int) -> bool:
        job = self._jobs.get(jobid)
        return job is None or not job.running

    def _kill(self, pid: int, status: Status) -> bool:
        """Whether it will end."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        except PermissionError:
            STDERR.write(f"process {pid} cannot be ended: it belongs to another user")
            self._spared.add((pid, status.starttime))
            return False
        return True
