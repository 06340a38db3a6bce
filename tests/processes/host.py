"""A model of the shell host: it does with its jobs what `flux_trio.shell` does with processes.

It has no processes, files or socket. A task "runs" for the seconds that its command `sleep` names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from flux_trio.cores.exec.vocabulary import Chunk, OutputRead, ReadOutput
from flux_trio.shell.job import STATUS_LOST, STATUS_NOT_EXECUTED, STATUS_NOT_FOUND
from flux_trio.shell.protocol import (
    STREAMS,
    Ack,
    Attach,
    Done,
    Failure,
    Fed,
    Feed,
    Listing,
    Postponed,
    ShellNotice,
    ShellRequest,
    Signal,
    Start,
    Started,
    Task,
    TaskSize,
    Unknown,
)

SIGKILL: Final = 9
DIES_S: Final = 0.1  # a task that gets a signal ends within this time
LETTERS: Final = "aé€𝄞\n"  # of one to four bytes each
SHORT: Final = (1, 10, 100)  # characters that a task writes at a time
LONG: Final = (70_000, 400_000)  # more than one read of output; more than one piece in the kvs

Later = Callable[[float, Callable[[], object]], None]
"""Does something after so many seconds."""


@dataclass(frozen=True)
class Habits:
    """How often something happens, from 0 to 1."""

    postpones: float = 0.0  # a task cannot be launched for now
    fails: float = 0.0  # a task cannot be launched at all
    ignores: float = 0.0  # a task ignores a signal other than SIGKILL
    writes_much: float = 0.0  # what a task writes is long


@dataclass
class HostedJob:
    """A job of the host: its tasks, and what they have written by number and stream."""

    id: int
    ntasks: int
    running: set[int] = field(default_factory=set)
    adopted: set[int] = field(default_factory=set)  # launched by a host that was killed
    statuses: dict[int, int | None] = field(default_factory=dict)  # None: lost
    failure: Failure | None = None
    is_waiting: bool = False  # some tasks were launched, the next ones have to wait
    was_launched: bool = False
    files: dict[tuple[int, str], bytes] = field(default_factory=lambda: defaultdict(bytes))

    @property
    def is_over(self) -> bool:
        return not self.running and not self.is_waiting

    @property
    def missing(self) -> list[int]:
        """The tasks that were neither launched nor given up."""
        return [
            each for each in range(self.ntasks) if each not in self.running | set(self.statuses)
        ]

    @property
    def written(self) -> dict[tuple[int, str], bytes]:
        """What the tasks have written, without empty files."""
        return {file: data for file, data in self.files.items() if data}


class ModelHost:
    """The jobs of one directory; `tell` sends notices to the client, `later` lets time pass."""

    def __init__(
        self, draw: Random, habits: Habits, later: Later, tell: Callable[[list[ShellNotice]], None]
    ) -> None:
        self.habits = habits
        self.jobs: dict[int, HostedJob] = {}  # those that are not acknowledged
        self.launched: dict[int, HostedJob] = {}  # all that ever had a process
        self.launches: Counter[tuple[int, int]] = Counter()  # by job and task
        self.npostponed = 0
        self._draw = draw
        self._later = later
        self._tell = tell

    # --- requests

    def handle(self, request: ShellRequest) -> None:
        """Do what the client asks for."""
        match request:
            case Start():
                self._tell(self._start(request))
            case Attach(jobid):
                self._tell(self._attach(jobid))
            case Signal(jobid, signum):
                self._signal(jobid, signum)
            case Feed(jobid):
                self._tell([Fed(jobid, open=True)])
            case Ack(jobid):
                if jobid in self.jobs and self.jobs[jobid].is_over:
                    del self.jobs[jobid]

    def listing(self) -> Listing:
        """Return the jobs that have ended."""
        return Listing([job.id for job in self.jobs.values() if job.is_over])

    def read(self, wanted: ReadOutput) -> OutputRead:
        """Return what is there of the output; a job that is acknowledged has none."""
        job = self.jobs.get(wanted.id)
        written = {} if job is None else job.written
        chunks = []
        for part in wanted.parts:
            data = written.get((part.taskid, part.stream), b"")
            found = data[part.offset : part.offset + part.nbytes]
            if found:
                chunks.append(Chunk(part.taskid, part.stream, part.offset, found))
        return OutputRead(wanted.number, wanted.id, tuple(chunks))

    def be_killed(self) -> None:
        """Let SIGKILL end the host: another one adopts its tasks, and cannot know their statuses.

        Tasks that were not launched are lost, as those that the record of the job misses.
        """
        for job in self.jobs.values():
            job.is_waiting = False
            job.adopted |= job.running
            if job.failure is None:
                job.statuses |= dict.fromkeys(job.missing)

    # --- starts

    def _start(self, request: Start) -> list[ShellNotice]:
        job = self.jobs.get(request.id)
        if job is None:
            job = self.jobs[request.id] = HostedJob(request.id, len(request.tasks))
        elif not job.is_waiting:
            return self._describe(request.id)
        job.is_waiting = False
        missing = set(job.missing)
        for task in request.tasks:
            if task.taskid not in missing:
                continue
            if self._draw.random() < self.habits.postpones:
                return [self._postpone(job)]
            if self._draw.random() < self.habits.fails:
                job.statuses[task.taskid] = STATUS_NOT_FOUND
                job.failure = Failure(task.taskid, "no such command in this model")
                break
            self._launch(job, request, task)
        return self._describe(job.id)

    def _postpone(self, job: HostedJob) -> Postponed:
        self.npostponed += 1
        job.is_waiting = job.was_launched
        if not job.was_launched:
            del self.jobs[job.id]
        return Postponed(job.id, "the model has no room")

    def _launch(self, job: HostedJob, request: Start, task: Task) -> None:
        self.launches[job.id, task.taskid] += 1
        self.launched[job.id] = job
        job.was_launched = True
        job.running.add(task.taskid)
        argv = task.argv or request.argv
        seconds = float(argv[1])
        for _ in range(self._draw.choice((0, 1, 3))):
            self._later(seconds * self._draw.random(), lambda: self._write(job, task.taskid))
        self._later(seconds, lambda: self._end(job, task.taskid, 0))

    def _attach(self, jobid: int) -> list[ShellNotice]:
        job = self.jobs.get(jobid)
        if job is not None and job.is_waiting:
            job.is_waiting = False
            job.failure = Failure(job.missing[0], "given up before its start")
            job.statuses[job.missing[0]] = STATUS_NOT_EXECUTED
        return self._describe(jobid)

    # --- tasks

    def _write(self, job: HostedJob, taskid: int) -> None:
        if taskid not in job.running:
            return
        draw = self._draw
        length = draw.choice(LONG if draw.random() < self.habits.writes_much else SHORT)
        text = "".join(draw.choices(LETTERS, k=min(length, 1000))) * max(1, length // 1000)
        data = text.encode()
        if draw.random() < 0.2:  # the last character is cut off
            data = data[:-1]
        job.files[taskid, draw.choice(STREAMS)] += data

    def _signal(self, jobid: int, signum: int) -> None:
        job = self.jobs.get(jobid)
        if job is None:
            return
        for taskid in sorted(job.running):
            if signum == SIGKILL or self._draw.random() >= self.habits.ignores:
                end = partial(self._end, job, taskid, (128 + signum) << 8)
                self._later(DIES_S * self._draw.random(), end)

    def _end(self, job: HostedJob, taskid: int, status: int) -> None:
        if taskid not in job.running:
            return
        job.running.remove(taskid)
        job.statuses[taskid] = None if taskid in job.adopted else status
        if job.is_over and self.jobs.get(job.id) is job:
            self._tell([_done(job)])

    def _describe(self, jobid: int) -> list[ShellNotice]:
        job = self.jobs.get(jobid)
        if job is None:
            return [Unknown(jobid)]
        started = Started(jobid, job.failure)
        return [started, _done(job)] if job.is_over else [started]


def _done(job: HostedJob) -> Done:
    statuses = [STATUS_LOST if each is None else each for each in job.statuses.values()]
    sizes = [
        TaskSize(taskid, *[len(job.files[taskid, stream]) for stream in STREAMS])
        for taskid in range(job.ntasks)
    ]
    return Done(
        job.id,
        max(statuses, default=STATUS_LOST),
        job.ntasks,
        sorted(taskid for taskid, status in job.statuses.items() if status is None),
        [each for each in sizes if each.stdout or each.stderr],
    )
