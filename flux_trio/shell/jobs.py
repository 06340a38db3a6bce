"""The shell host's jobs: processes, and the files that say what became of them.

`jobs/` below the host's directory has a file for each stream of each task, and for each job a
record (`shell_records.py`). The one thing that records cannot say is a process started by a host
that was killed before it had written the line; such a task counts as lost.

A task that cannot be launched because the host lacks something (`shell_shortage.py`) waits, and
with it the tasks after it: the next `Start` of the job goes on there. A job of which no task was
launched is forgotten meanwhile.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flux_trio.console import STDERR
from flux_trio.shell.files import open_streams
from flux_trio.shell.input import JobInputs
from flux_trio.shell.job import (
    STATUS_NOT_EXECUTED,
    STATUS_NOT_FOUND,
    Process,
    ShellJob,
    start_time,
)
from flux_trio.shell.job_cgroups import JobCgroups
from flux_trio.shell.leftovers import Leftovers
from flux_trio.shell.limits import limiting
from flux_trio.shell.orphans import Orphans, name_of_host
from flux_trio.shell.protocol import (
    JOBS_NAME,
    STREAMS,
    Done,
    Failure,
    Listing,
    Postponed,
    ShellNotice,
    Start,
    Started,
    Task,
    TaskSize,
    Unknown,
    output_name,
)
from flux_trio.shell.records import (
    RECORD_SUFFIX,
    Accepted,
    Ended,
    Failed,
    Launched,
    Line,
    append_record,
    create_record,
    jobid_of,
    read_record,
    remove,
)
from flux_trio.shell.shortage import ShortageError, describe_shortage, is_shortage

if TYPE_CHECKING:
    from collections.abc import Iterator


class ShellJobs:
    """All jobs of one directory that are not acknowledged."""

    def __init__(self, directory: Path) -> None:
        self.inputs = JobInputs()
        self.cgroups = JobCgroups(name_of_host(directory))
        self._directory = directory
        self._jobs: dict[int, ShellJob] = {}
        self._children: dict[int, Process] = {}
        self._tasks: dict[int, int] = {}  # process id → job, also of tasks that have ended
        self._orphans = Orphans(directory)
        self._leftovers = Leftovers(self._orphans, self._jobs, self._tasks)
        self._to_clear: list[ShellJob] = []
        self._cores = os.sched_getaffinity(0)

    @property
    def nrunning(self) -> int:
        """How many jobs have a process."""
        return sum(1 for job in self._jobs.values() if job.has_process)

    def recover(self) -> list[Process]:
        """Read every record; returns the processes of an earlier host that still run."""
        for path in (self._directory / JOBS_NAME).glob(f"*{RECORD_SUFFIX}"):
            jobid = jobid_of(path)
            try:
                lines = None if jobid is None else read_record(path)
            except OSError as error:
                STDERR.write(f"{path}: {error.strerror}")
                lines = None
            if jobid is None or lines is None:
                STDERR.write(f"{path} is left alone: it is no record of a job")
                continue
            job = self._jobs[jobid] = ShellJob(jobid)
            job.is_adopted = True
            for line in lines:
                job.apply(line)
                if isinstance(line, Launched):
                    self._tasks[line.pid] = jobid
                    self.cgroups.adopt(jobid, line.cgroup)
            self._settle(job)
        self._clear_earlier()
        return [process for job in self._jobs.values() for process in job.running.values()]

    def start(self, request: Start) -> list[ShellNotice]:
        """Launch a job that was never started here, or the tasks of it that wait; say how it is."""
        job = self._jobs.get(request.id)
        if job is None:
            try:
                job = self._accept(request)
            except FileExistsError as error:  # a record that cannot be read: it may have run
                failure = Failure(0, f"{error.filename}: {error.strerror}")
                return [
                    Started(request.id, failure),
                    Done(request.id, STATUS_NOT_EXECUTED, len(request.tasks)),
                ]
            except OSError as error:
                text = describe_shortage(error, [self._record(request.id)])
                return [Postponed(request.id, text)]
        elif not job.is_waiting:
            return self.describe(request.id)
        return self._launch_missing(job, request)

    def attach(self, jobid: int) -> list[ShellNotice]:
        """Say how a job is; tasks of it that wait are given up."""
        job = self._jobs.get(jobid)
        if job is None or not job.is_waiting:
            return self.describe(jobid)
        job.is_waiting = False
        self._note(job, Failed(job.missing[0], STATUS_NOT_EXECUTED, "given up before its start"))
        return self._all_launched(job)

    def describe(self, jobid: int) -> list[ShellNotice]:
        job = self._jobs.get(jobid)
        if job is None:
            return [Unknown(jobid)]
        started = Started(jobid, job.failure)
        return [started, self._done(job)] if job.is_over else [started]

    def signal(self, jobid: int, signum: int) -> None:
        """Signal every process group of a job; nothing when it has none."""
        job = self._jobs.get(jobid)
        for process in list(job.running.values()) if job else ():
            process.signal(signum)

    def ack(self, jobid: int) -> None:
        """Forget a job that has ended."""
        job = self._jobs.get(jobid)
        if job is not None and job.is_over:
            self._forget(job)

    def ended(self) -> Listing:
        """The jobs that wait to be acknowledged."""
        return Listing([job.id for job in self._jobs.values() if job.is_over])

    def reap(self) -> list[ShellNotice]:
        """Take the statuses of children that have ended; the notices of jobs that end with them.

        What a task leaves behind in its process group is killed: resources must not be given away
        under processes that use them. That is safe only while the group's leader is a zombie,
        whose id cannot be anyone else's. What is left elsewhere is `Leftovers`'s.
        """
        notices: list[ShellNotice] = []
        ended: list[ShellJob] = []
        while (pid := _ended_child()) is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            process = self._children.pop(pid, None)
            if process is None:  # an orphan: nobody needs to know how it ended
                continue
            assert process.child is not None
            process.child.returncode = status  # or Popen would wait for it once more
            self._note(process.job, Ended(process.taskid, status))
            if not process.job.running and not process.job.is_waiting:
                ended.append(process.job)
        for job in ended:
            notices += self._clear(job)
        return notices

    def end_adopted(self, process: Process) -> list[ShellNotice]:
        """A process of an earlier host has ended; init has its status."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        self._note(process.job, Ended(process.taskid, None))
        return [] if process.job.running else self._clear(process.job)

    def take_to_clear(self) -> list[ShellJob]:
        """The jobs of which something is left since the last time; see `kill_leftovers`."""
        jobs, self._to_clear = self._to_clear, []
        return jobs

    async def kill_leftovers(self, job: ShellJob) -> list[int]:
        """Kill what is left of a job whose tasks have ended; ids of the processes to be awaited.

        It is over when nothing is: call this again when those have ended, and then `cleared`.
        OSError: that cannot be told now.
        """
        return await self.cgroups.kill(job.id) or self._leftovers.kill(job, self._children)

    def cleared(self, job: ShellJob) -> list[ShellNotice]:
        """Nothing is left of the job."""
        job.is_clearing = False
        self.inputs.end(job.id)
        self.cgroups.release(job.id)
        return [self._done(job)]

    def _clear(self, job: ShellJob) -> list[ShellNotice]:
        with suppress(OSError):
            if not (self.cgroups.left(job.id) or self._leftovers.kill(job, self._children)):
                return self.cleared(job)
        self._clear_later(job)
        return []

    def _clear_earlier(self) -> None:
        """End what an earlier host left of jobs that have ended."""
        try:
            self.cgroups.end_unowned()
            earlier = self._leftovers.kill_earlier()
            for job in self._jobs.values():
                if job.is_over and (job.id in earlier or self.cgroups.left(job.id)):
                    self._clear_later(job)
                elif job.is_over:
                    self.cgroups.release(job.id)
        except OSError as error:
            STDERR.write(f"what jobs have left behind cannot be looked for: {error.strerror}")

    def _clear_later(self, job: ShellJob) -> None:
        job.is_clearing = True
        self._to_clear.append(job)

    def _accept(self, request: Start) -> ShellJob:
        """A job of which nothing was launched. OSError: there can be no record of it."""
        accepted = Accepted(len(request.tasks))
        create_record(self._record(request.id), accepted)
        job = self._jobs[request.id] = ShellJob(request.id)
        job.apply(accepted)
        return job

    def _forget(self, job: ShellJob) -> None:
        del self._jobs[job.id]
        for pid in [pid for pid in job.pids if self._tasks.get(pid) == job.id]:
            del self._tasks[pid]
        for taskid, stream in itertools.product(range(job.ntasks), STREAMS):
            remove(self._output_path(job.id, taskid, stream))
        remove(self._record(job.id))  # last: while it is there, the job is

    def _launch_missing(self, job: ShellJob, request: Start) -> list[ShellNotice]:
        """Launch tasks in order until one fails, or has to wait; say how the job is."""
        job.is_waiting = False
        missing = set(job.missing)
        if request.input and not self.inputs.has_room(len(missing)):
            request = msgspec.structs.replace(request, input=False)
        for task in request.tasks:
            try:
                if task.taskid in missing and not self._launch(job, request, task):
                    break
            except ShortageError as error:
                if job.pids:
                    job.is_waiting = True
                else:  # nothing of it ever ran: the next start is its first
                    self.inputs.end(job.id)
                    self._forget(job)
                return [Postponed(job.id, str(error))]
        return self._all_launched(job)

    def _all_launched(self, job: ShellJob) -> list[ShellNotice]:
        """Say how a job is of which no task will be launched any more."""
        if job.running:
            return self.describe(job.id)
        self.inputs.end(job.id)
        if not job.pids:
            return self.describe(job.id)
        # tasks that ended while others waited may have left something
        return [Started(job.id, job.failure), *self._clear(job)]

    def _launch(self, job: ShellJob, request: Start, task: Task) -> bool:
        """Start one task; False when it could not be. ShortageError: it cannot be now."""
        argv = task.argv or request.argv
        own = {stream: self._output_path(job.id, task.taskid, stream) for stream in STREAMS}
        emptied = None if request.append else job.emptied
        try:
            with (
                self.inputs.pipe(job.id, task.taskid, wanted=request.input) as pipe,
                open_streams(own, task.files, request.cwd, emptied, pipe) as files,
                self._on_cores(task.cores),
            ):
                stdin, stdout, stderr = files
                child = subprocess.Popen(
                    argv,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    cwd=request.cwd,
                    env=request.env | task.env | self._orphans.mark(job.id),
                    start_new_session=True,
                    preexec_fn=limiting(request.limits),
                )
        except OSError as error:
            if is_shortage(error, own.values(), argv[0], has_limits=bool(request.limits)):
                raise ShortageError(describe_shortage(error, own.values())) from None
            is_missing = isinstance(error, FileNotFoundError) and error.filename == argv[0]
            status = STATUS_NOT_FOUND if is_missing else STATUS_NOT_EXECUTED
            self._note(job, Failed(task.taskid, status, f"{error.filename}: {error.strerror}"))
            return False
        except (ValueError, subprocess.SubprocessError) as error:  # a NUL in a string, a limit
            self._note(job, Failed(task.taskid, STATUS_NOT_EXECUTED, f"{argv[0]}: {error}"))
            return False
        process = Process(job, task.taskid, child.pid, start_time(child.pid) or 0, child)
        cgroup = self.cgroups.take(job.id)
        self._note(job, Launched(task.taskid, process.pid, process.starttime, cgroup))
        job.running[task.taskid] = self._children[child.pid] = process
        self._tasks[child.pid] = job.id
        return True

    @contextmanager
    def _on_cores(self, cores: list[int]) -> Iterator[None]:
        """Bind this thread for as long as it takes to make a child, which inherits it.

        Binding the child afterwards would leave its first threads where they are, and doing it
        between fork and exec would cost vfork. Cores that this machine lacks, or may not use, are
        those of a posed target: then nothing is bound.
        """
        wanted = set(cores)
        if not wanted or not wanted < self._cores:
            yield
            return
        os.sched_setaffinity(0, wanted)
        try:
            yield
        finally:
            os.sched_setaffinity(0, self._cores)

    def _settle(self, job: ShellJob) -> None:
        """After a host was killed: tasks that neither run nor ended in its sight are lost."""
        for process in list(job.running.values()):
            if start_time(process.pid) != process.starttime:
                self._note(job, Ended(process.taskid, None))
        if job.failure is None:
            known = job.running.keys() | job.statuses.keys()
            for taskid in set(range(max(job.ntasks, 1))) - known:
                self._note(job, Ended(taskid, None))

    def _done(self, job: ShellJob) -> Done:
        return Done(job.id, job.status, job.ntasks, job.lost, self._sizes(job))

    def _sizes(self, job: ShellJob) -> list[TaskSize]:
        sizes = []
        for taskid in range(job.ntasks):
            stdout, stderr = (self._size(job, taskid, stream) for stream in STREAMS)
            if stdout or stderr:
                sizes.append(TaskSize(taskid, stdout, stderr))
        return sizes

    def _size(self, job: ShellJob, taskid: int, stream: str) -> int:
        try:
            return self._output_path(job.id, taskid, stream).stat().st_size
        except OSError:  # it is not there, or cannot be looked at
            return 0

    def _note(self, job: ShellJob, line: Line) -> None:
        """Make `line` true: on disk first, then in memory."""
        try:
            append_record(self._record(job.id), line)
        except OSError as error:  # a full disk must not take the other jobs along
            STDERR.write(f"job {job.id}: cannot record {line}: {error}")
        job.apply(line)

    def _record(self, jobid: int) -> Path:
        return self._directory / JOBS_NAME / f"{jobid}{RECORD_SUFFIX}"

    def _output_path(self, jobid: int, taskid: int, stream: str) -> Path:
        return self._directory / output_name(jobid, taskid, stream)


def _ended_child() -> int | None:
    """The id of a child that has ended, left unreaped."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None
