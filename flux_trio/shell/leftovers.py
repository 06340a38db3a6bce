"""Find and SIGKILL the processes that remain when the tasks of a job have ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from flux_trio.process.console import STDERR
from flux_trio.shell.orphans import ENDED, Orphans, Status, status_of

if TYPE_CHECKING:
    from flux_trio.shell.job import ShellJob


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

        When a process ends, its children become the host's, and the next search finds them. So a
        process that ended before or during the search is also one to wait for.
        """
        left = []
        for pid, owner in self._found(job, running):
            status = _living(pid)
            if status is None:
                left.append(pid)
            elif owner == job.id:
                left += [pid] if self._kill(pid, status) else []
            elif owner is not None and self._is_over(owner):
                self._kill(pid, status)
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

    def _found(self, job: ShellJob, running: Collection[int]) -> Iterator[tuple[int, int | None]]:
        """Yield the processes that are not tasks, and the job of each or None if it is unknown."""
        for pid in self._orphans.children():
            if pid not in running:
                status = _living(pid)
                yield pid, None if status is None else self._owner(job, pid, status)
        if job.is_adopted:  # processes of its tasks are not children of this host
            for pid, owner in self._orphans.marked().items():
                if owner == job.id and pid not in running:
                    yield pid, owner

    def _owner(self, job: ShellJob, pid: int, status: Status) -> int | None:
        """Return the job of a child: `job`, which is being cleared, if it can be no other."""
        owner = self._orphans.job_of(pid, status, self._tasks)
        return job.id if owner is None and not self._may_be_anothers(status) else owner

    def _may_be_anothers(self, status: Status) -> bool:
        """Return whether a process without a mark may belong to a running job."""
        jobs = self._jobs.values()
        return any(job.running and job.launched_at <= status.starttime for job in jobs)

    def _is_over(self, jobid: int) -> bool:
        job = self._jobs.get(jobid)
        return job is None or not job.running

    def _kill(self, pid: int, status: Status) -> bool:
        """Send SIGKILL unless it was refused before; return whether the process ends."""
        if (pid, status.starttime) in self._spared:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended
        except PermissionError:
            STDERR.write(f"cannot kill process {pid}: it belongs to another user")
            self._spared.add((pid, status.starttime))
            return False
        return True


def _living(pid: int) -> Status | None:
    """Return the status of `pid`, or None if it has ended. Raises OSError if unreadable now."""
    status = status_of(pid)
    return None if status is None or status.state in ENDED else status
