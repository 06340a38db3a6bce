"""The shell host's jobs: their processes, and the files with their output and state.

`jobs/` below the host's directory has a file for each stream of each task (`outputs.py`), and for
each job a record (`records.py`). If a host starts a process and is killed before it has written the
line, the record misses it; the task then counts as lost.

If a task cannot be launched because the host lacks a resource (`shortage.py`), it waits, and so do
the tasks after it: the next `Start` of the job goes on there. If no task of the job was launched,
the job is forgotten until that `Start`.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio

from flux_trio.process.console import STDERR
from flux_trio.process.private import open_directory
from flux_trio.shell.files import place, working_directory
from flux_trio.shell.input import JobInputs
from flux_trio.shell.job import STATUS_NOT_EXECUTED, Process, ShellJob, start_time
from flux_trio.shell.job_cgroups import JobCgroups, Place
from flux_trio.shell.labels import LabeledOutput
from flux_trio.shell.launching import Launcher
from flux_trio.shell.leftovers import Leftovers
from flux_trio.shell.orphans import Orphans, name_of_host
from flux_trio.shell.outputs import AT_ONCE_BYTES_MAX, Outputs
from flux_trio.shell.pmi import PmiSockets, TaskSockets
from flux_trio.shell.protocol import (
    JOBS_NAME,
    Done,
    Failure,
    Fed,
    Feed,
    Listing,
    Postponed,
    Processes,
    ShellNotice,
    Start,
    Started,
    Survivors,
    Task,
    Unknown,
)
from flux_trio.shell.records import (
    RECORD_SUFFIX,
    Accepted,
    Ended,
    Failed,
    FileSum,
    LabeledFile,
    Launched,
    Line,
    Record,
    Written,
    jobid_of,
    record_name,
)
from flux_trio.shell.shortage import ShortageError, describe_shortage
from flux_trio.shell.tmpdirs import JobDirectories

if TYPE_CHECKING:
    from pathlib import Path

    from flux_trio.process.private import PrivateDirectory


class ShellJobs:
    """The jobs of one `directory` that are not acknowledged; `files` is `jobs/` in it."""

    def __init__(self, directory: Path, files: PrivateDirectory) -> None:
        self.inputs = JobInputs()
        self.pmi = PmiSockets()
        self._tmpdirs = JobDirectories(directory)
        self.cgroups = JobCgroups(name_of_host(directory))
        self._directory = directory
        self._files = files
        self._outputs = Outputs(files)
        self._jobs: dict[int, ShellJob] = {}
        self._records: dict[int, Record] = {}  # of these jobs
        self._children: dict[int, Process] = {}
        self._tasks: dict[int, int] = {}  # process id → job, including ended tasks
        self._orphans = Orphans(directory)
        self._leftovers = Leftovers(self._orphans, self._jobs, self._tasks)
        self._to_clear: list[ShellJob] = []
        self._to_label: list[ShellJob] = []
        self._launcher = Launcher(self.inputs, self._orphans)

    @property
    def nrunning(self) -> int:
        """How many jobs have a process."""
        return sum(1 for job in self._jobs.values() if job.has_process)

    def recover(self) -> list[Process]:
        """Read every record; return the processes of an earlier host that still run."""
        launched: list[tuple[Place, int]] = []
        for name in self._files.names():
            if not name.endswith(RECORD_SUFFIX):
                continue
            jobid = jobid_of(name)
            lines = None
            try:
                if jobid is not None:
                    record = Record(self._files, jobid)
                    lines = record.read()
            except OSError as error:
                STDERR.write(f"{error.filename}: {error.strerror}")
            if jobid is None or lines is None:
                STDERR.write(f"ignored {self._files.path}/{name}: it is not the record of a job")
                continue
            if record.damage:
                STDERR.write(record.damage)
            job = self._jobs[jobid] = ShellJob(jobid)
            self._records[jobid] = record
            job.is_adopted = True
            for line in lines:
                job.apply(line)
                if isinstance(line, Accepted) and line.labeled:
                    self._label(job, line.labeled)
                elif isinstance(line, Launched):
                    self._tasks[line.pid] = jobid
                    launched.append((Place(line.cgroup, line.use), jobid))
            self._settle(job)
        self.cgroups.adopt(launched)
        self._tmpdirs.remove_others(each.id for each in self._jobs.values() if each.running)
        self._clear_earlier()
        return [process for job in self._jobs.values() for process in job.running.values()]

    def start(self, request: Start) -> list[ShellNotice]:
        """Launch a new job, or the waiting tasks of a job; return its state as notices."""
        job = self._jobs.get(request.id)
        cwd, warning = working_directory(request.cwd)
        request = msgspec.structs.replace(request, cwd=cwd)
        if job is None:
            try:
                job = self._accept(request)
            except FileExistsError as error:  # an unreadable record: the job may have run
                failure = Failure(0, f"{error.filename}: {error.strerror}")
                return [
                    Started(request.id, failure),
                    Done(request.id, STATUS_NOT_EXECUTED, len(request.tasks)),
                ]
            except OSError as error:
                path = f"{self._files.path}/{record_name(request.id)}"
                text = describe_shortage(error, [path])
                return [Postponed(request.id, text)]
        elif not job.is_waiting:
            return self.describe(request.id)
        return self._launch_missing(job, request, warning)

    def attach(self, jobid: int) -> list[ShellNotice]:
        """Return the state of a job as notices; give up its waiting tasks."""
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
        if not job.is_over:
            return [started] if job.first_exit is None else [started, job.first_exit]
        if self._takes_long(job):
            self._clear_later(job)
            return [started]
        self._outputs_read(job, *self._read(job))
        return [started, self._done(job)]

    def signal(self, jobid: int, signum: int) -> None:
        """Send a signal to every process group of a job."""
        job = self._jobs.get(jobid)
        for process in list(job.running.values()) if job else ():
            process.signal(signum)

    async def feed(self, request: Feed) -> Fed:
        """Write to the tasks of a job; return when all have the data, or nobody reads any more."""
        job = self._jobs.get(request.id)
        if job is not None and job.is_over:
            return Fed(request.id, open=False)
        return await self.inputs.feed(request)

    def survey(self, jobid: int) -> list[ShellNotice]:
        """Return the tasks of a job that have a process, by its mark if it left its task."""
        job = self._jobs.get(jobid)
        if job is None or not job.has_process:
            return []
        try:
            left = self._orphans.tasks_of(jobid, job.ntasks)
        except OSError:  # no free descriptor
            return []
        return [Survivors(jobid, sorted(left | job.running.keys()))]

    def identify(self, jobid: int) -> Processes:
        """Return the process of each task of a job that runs."""
        job = self._jobs.get(jobid)
        running = job.running if job else {}
        return Processes(
            jobid, socket.gethostname(), {each: running[each].pid for each in sorted(running)}
        )

    def ack(self, jobid: int) -> None:
        """Forget a job that has ended, and remove its files."""
        job = self._jobs.get(jobid)
        if job is not None and job.is_over:
            self._forget(job)

    def ended(self) -> Listing:
        """Return the jobs that have ended and are not acknowledged."""
        return Listing([job.id for job in self._jobs.values() if job.is_over])

    def reap(self) -> list[ShellNotice]:
        """Reap the children that have ended; return the notices of jobs that end with them.

        The rest of a task's process group is killed: resources must not be released while
        processes use them. This is safe only while the group's leader is a zombie, because its id
        is not used again. `Leftovers` handles processes that left the group.
        """
        notices: list[ShellNotice] = []
        ended: list[ShellJob] = []
        while (pid := _ended_child()) is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            process = self._children.pop(pid, None)
            if process is None:  # an orphan: its status is not needed
                continue
            assert process.child is not None
            process.child.returncode = status  # else Popen would wait for it again
            notices += self._task_ended(process, status)
            if not process.job.running and not process.job.is_waiting:
                ended.append(process.job)
        for job in ended:
            notices += self._clear(job)
        return notices

    def end_adopted(self, process: Process) -> list[ShellNotice]:
        """End a task of an earlier host; its status is unknown, because init has reaped it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        notices = self._task_ended(process, None)
        return notices if process.job.running else self._clear(process.job)

    def _task_ended(self, process: Process, status: int | None) -> list[ShellNotice]:
        """Record the end of a task; return the notice if it is the first of its job."""
        job, is_first = process.job, process.job.first_exit is None
        self._note(job, Ended(process.taskid, status))
        return [job.first_exit] if is_first and job.first_exit and not job.is_over else []

    def pop_to_clear(self) -> list[ShellJob]:
        """Return the jobs to clear since the last call; see `kill_leftovers`."""
        jobs, self._to_clear = self._to_clear, []
        return jobs

    def pop_to_label(self) -> list[ShellJob]:
        """Return the jobs with labeled output since the last call; see `copy_lines`."""
        jobs, self._to_label = self._to_label, []
        return jobs

    async def kill_leftovers(self, job: ShellJob) -> list[int]:
        """Kill the remaining processes of a job whose tasks have ended; return those to wait for.

        Call it again when they have ended, until it returns []; then call `cleared`. Raises OSError
        if the processes cannot be listed now.
        """
        return await self.cgroups.kill(job.id) or self._leftovers.kill(job, self._children)

    async def read_outputs(self, job: ShellJob) -> None:
        """Read the output of a job that has no process left; call `cleared` after it."""
        lacks = await self._copy_lines(job, is_last=True) if job.written is None else []
        if self._has_much_output(job):
            written, damage = await trio.to_thread.run_sync(self._read, job)
        else:
            written, damage = self._read(job)
        self._outputs_read(job, written, lacks + damage)

    async def copy_lines(self, job: ShellJob) -> bool:
        """Copy new lines of labeled output; return whether to call this again later."""
        if job.labels is None or job.is_over or job.is_clearing:
            return False
        await self._copy_lines(job, is_last=False)
        return True

    async def _copy_lines(self, job: ShellJob, *, is_last: bool) -> list[str]:
        if job.labels is None:
            return []
        async with job.labels.lock:  # a file of the job's may be on a disk that hangs
            return await trio.to_thread.run_sync(partial(job.labels.copy, is_last=is_last))

    async def remove_directory(self, job: ShellJob) -> None:
        """Remove the directory of a job that has no process left."""
        if self._tmpdirs.has_more(job.id):
            await trio.to_thread.run_sync(self._tmpdirs.remove, job.id)

    def cleared(self, job: ShellJob) -> list[ShellNotice]:
        """End a job that has no process left."""
        job.is_clearing = False
        self.inputs.end(job.id)
        self.cgroups.release(job.id)
        return [self._done(job)]

    def _clear(self, job: ShellJob) -> list[ShellNotice]:
        with suppress(OSError):
            is_left = self.cgroups.left(job.id) or self._leftovers.kill(job, self._children)
            has_more = self._tmpdirs.has_more(job.id)
            if not (is_left or has_more or self._takes_long(job)):
                self._outputs_read(job, *self._read(job))
                return self.cleared(job)
        self._clear_later(job)
        return []

    def _clear_earlier(self) -> None:
        """Kill the remaining processes of jobs that ended under an earlier host."""
        try:
            self.cgroups.end_unowned()
            earlier = self._leftovers.kill_earlier()
            for job in self._jobs.values():
                if job.is_over and (job.id in earlier or self.cgroups.left(job.id)):
                    self._clear_later(job)
                elif job.is_over:
                    self.cgroups.release(job.id)
        except OSError as error:
            STDERR.write(f"cannot search for remaining processes of jobs: {error.strerror}")

    def _clear_later(self, job: ShellJob) -> None:
        job.is_clearing = True
        self._to_clear.append(job)

    def _accept(self, request: Start) -> ShellJob:
        """Create a job without launched tasks. Raises OSError if its record cannot be created."""
        self._enter_files()
        labeled = [
            LabeledFile(task.taskid, stream, place(request.cwd, task.files[stream]))
            for task in request.tasks
            for stream in request.labeled
        ]
        accepted = Accepted(len(request.tasks), labeled)
        record = Record(self._files, request.id)
        if request.tmpdir:
            self._tmpdirs.make(request.id, request.files)
        record.create(accepted)
        job = self._jobs[request.id] = ShellJob(request.id)
        name = request.env.get("FLUX_JOB_ID", str(request.id))
        job.pmi = self.pmi.server(request.id, name, len(request.tasks), request.pmi)
        self._records[request.id] = record
        job.apply(accepted)
        if labeled:
            self._label(job, labeled)
        return job

    def _label(self, job: ShellJob, files: list[LabeledFile]) -> None:
        job.labels = LabeledOutput(self._files, job.id, files)
        self._to_label.append(job)

    def _enter_files(self) -> None:
        """Enter `jobs/` again if another directory is there now, or none. Raises OSError.

        Who reads the output of jobs finds it by its path. Earlier jobs go on where they are.
        """
        if not self._files.is_at(f"{self._directory}/{JOBS_NAME}"):
            parent, name = self._directory.parent, self._directory.name
            self._files = open_directory(parent, name, JOBS_NAME)
            self._outputs = Outputs(self._files)

    def _forget(self, job: ShellJob) -> None:
        del self._jobs[job.id]
        for pid in [pid for pid in job.pids if self._tasks.get(pid) == job.id]:
            del self._tasks[pid]
        self._outputs.remove(job.id, job.ntasks)
        if job.labels is not None:
            job.labels.remove()
        self._records.pop(job.id).remove()  # last: the job exists as long as its record

    def _launch_missing(self, job: ShellJob, request: Start, warning: str) -> list[ShellNotice]:
        """Launch tasks in order until one fails or has to wait; return the job's state."""
        job.is_waiting = False
        missing = set(job.missing)
        if request.input and not self.inputs.has_room(len(missing)):
            request = msgspec.structs.replace(request, input=False)
        try:
            with TaskSockets(self.pmi, job.pmi) as sockets:
                for task in request.tasks:
                    says = "" if job.pids else warning  # the first task says it, for all
                    if task.taskid not in missing:
                        continue
                    if not self._launch(job, request, task, says, sockets):
                        break
        except ShortageError as error:
            if job.pids:
                job.is_waiting = True
            else:  # no task ever ran: the next start is its first
                self.inputs.end(job.id)
                self._forget(job)
            return [Postponed(job.id, str(error))]
        return self._all_launched(job)

    def _all_launched(self, job: ShellJob) -> list[ShellNotice]:
        """Return the state of a job when no more of its tasks will be launched."""
        if job.running:
            return self.describe(job.id)
        self.inputs.end(job.id)
        if not job.pids:
            return self.describe(job.id)
        # tasks that ended while others waited may have left processes
        return [Started(job.id, job.failure), *self._clear(job)]

    def _launch(
        self, job: ShellJob, request: Start, task: Task, says: str, sockets: TaskSockets
    ) -> bool:
        """Launch one task; return False if it failed. Raises ShortageError if it has to wait.

        `says` is written to its standard error first.
        """
        pmi = sockets.of_task(task.taskid)
        child = self._launcher.launch(request, task, self._files, job.emptied, pmi, says)
        if isinstance(child, Failed):
            self._note(job, child)
            return False
        process = Process(job, task.taskid, child.pid, start_time(child.pid) or 0, child)
        place = self.cgroups.assign(job.id)
        self._note(job, Launched(task.taskid, process.pid, process.starttime, *place))
        job.running[task.taskid] = self._children[child.pid] = process
        self._tasks[child.pid] = job.id
        return True

    def _settle(self, job: ShellJob) -> None:
        """After a host was killed, mark tasks that do not run and have no status as lost."""
        for process in list(job.running.values()):
            if start_time(process.pid) != process.starttime:
                self._note(job, Ended(process.taskid, None))
        if job.failure is None:
            known = job.running.keys() | job.statuses.keys()
            for taskid in set(range(max(job.ntasks, 1))) - known:
                self._note(job, Ended(taskid, None))

    def _takes_long(self, job: ShellJob) -> bool:
        """Return whether to read the job's output, or to copy it with labels, takes a while."""
        return (job.labels is not None and job.written is None) or self._has_much_output(job)

    def _has_much_output(self, job: ShellJob) -> bool:
        return self._outputs.nbytes(job.id, job.ntasks) > AT_ONCE_BYTES_MAX

    def _read(self, job: ShellJob) -> tuple[list[FileSum], list[str]]:
        """Return what the job has written, and what is wrong with it if that was noted before."""
        if job.written is None:
            return self._outputs.sums(job.id, job.ntasks), []
        return job.written, self._outputs.damage(job.id, job.written)

    def _outputs_read(self, job: ShellJob, written: list[FileSum], damage: list[str]) -> None:
        if job.written is None:
            self._note(job, Written(written))
        if damage:
            STDERR.write("\n".join(damage))
        job.damage = damage

    def _done(self, job: ShellJob) -> Done:
        of_record = self._records[job.id].damage
        damage = [of_record, *job.damage] if of_record else job.damage
        return Done(job.id, job.status, job.ntasks, job.lost, job.sizes(), damage)

    def _note(self, job: ShellJob, line: Line) -> None:
        """Append `line` to the record, then apply it in memory."""
        try:
            self._records[job.id].append([line])
        except OSError as error:  # a full disk must not end the other jobs
            STDERR.write(f"job {job.id}: cannot record {line}: {error}")
        job.apply(line)


def _ended_child() -> int | None:
    """Return the id of a child that has ended, without reaping it; None without any."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None
