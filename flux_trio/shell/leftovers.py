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
        Those of a process that ended during the search may be missing from it.
        """
        ended: set[int] = set()
        while True:
            found, ended_by_now = self._search(job, running)
            if ended_by_now <= ended or any(owner == job.id for _, _, owner in found):
                return found
            ended = ended_by_now

    def _search(
        self, job: ShellJob, running: Collection[int]
    ) -> tuple[list[tuple[int, Status, int]], set[int]]:
        """Return what `_found` returns, of one search, and the processes that have ended."""
        found, ended = [], set()
        for pid in self._orphans.children():
            if pid in running:
                continue
            status = _living(pid)
            owner = None if status is None else self._owner(job, pid, status)
            if status is not None and owner is not None:
                found.append((pid, status, owner))
            elif _living(pid) is None:  # it may have ended before its owner was read
                ended.add(pid)
        if job.is_adopted:  # processes of its tasks are not children of this host
            for pid, owner in self._orphans.marked().items():
                if owner != job.id or pid in running:
                    continue
                if (status := _living(pid)) is None:
                    ended.add(pid)
                else:
                    found.append((pid, status, owner))
        left = [each for each in found if (each[0], each[1].starttime) not in self._spared]
        return left, ended

    def _owner(self, job: ShellJob, pid: int, status: Status) -> int | None:
        """Return the job of a child: `job`, which is being cleared, if it can be no other."""
        owner = self._orphans.job_of(pid, status, self._tasks)
        return job.id if owner is None and not self._may_be_anothers(status) else owner

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


def _living(pid: int) -> Status | None:
    """Return the status of `pid`, or None if it has ended. Raises OSError if unreadable now."""
    status = status_of(pid)
    return None if status is None or status.state in _ENDED else status
