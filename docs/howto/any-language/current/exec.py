"""An execution service in Python, of the edition current: RFC 32 on one page.

`python exec.py` inside an instance takes the place of job-exec. Each task of a job is a process on
this machine, in the process group of the service: whoever ends that group ends the tasks with it.
"""

from __future__ import annotations

import base64
import os
import subprocess
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import trio
from trio.lowlevel import open_process

from flux_trio.broker import Handle, open_remote
from flux_trio.clock import Clock
from flux_trio.formats import (
    Idset,
    Jobspec,
    ResourceSet,
    apply_update,
    format_fluid,
    job_key,
    parse_jobspec,
)
from flux_trio.messages import (
    Errno,
    Event,
    FluxError,
    Request,
    respond_error,
    respond_stream,
    topics,
)
from flux_trio.transports import connect_websocket

NAME = "exec-py"
FATAL = 0  # the severity of an exception that ends a job
KILL_S = 5.0  # from SIGTERM to SIGKILL
REMEMBERED = 1000  # jobs that have ended, in case the job manager did not hear it


class Leave(Exception):
    """The program has to end (RFC 32, Hello)."""


@dataclass
class Job:
    id: int
    spec: Jobspec
    start: Request | None  # what is answered; None while there is no job manager
    said: list[dict[str, Any]] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)  # those that are not released
    processes: list[trio.Process] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    ending: trio.Event = field(default_factory=trio.Event)  # a fatal exception has come
    cause: int | None = None  # the wait(2) status that the first of them has, if it has one

    def say(self, handle: Handle, kind: str, **data: Any) -> None:
        self.said.append({"id": self.id, "type": kind, "data": data})
        self.tell(handle, self.said[-1])

    def tell(self, handle: Handle, answer: dict[str, Any]) -> None:
        if self.start is not None and (response := respond_stream(self.start, answer)) is not None:
            handle.send(response)

    def ended_by(self, wait_status: int | None) -> None:
        if not self.ending.is_set():
            self.cause = wait_status
            self.ending.set()

    def environments(self) -> Iterator[dict[str, str]]:
        """The variables of each task."""
        given = os.environ | {"FLUX_JOB_ID": format_fluid(self.id, "f58")}
        for key, value in self.spec.environment.items():
            given.pop(key, None)
            if value is not None:
                given[key] = value
        for number in range(self.spec.ntasks):
            yield given | {"FLUX_TASK_RANK": str(number)}


@dataclass
class Service:
    handle: Handle
    nursery: trio.Nursery
    jobs: dict[int, Job] = field(default_factory=dict)
    over: deque[int] = field(default_factory=deque)

    async def hello(self) -> None:
        try:
            await self.handle.call(topics.EXEC_HELLO, {"service": NAME})
        except FluxError as error:
            if error.errnum != Errno.ENOSYS:  # that is: there is no job manager at the moment
                raise Leave(f"{topics.EXEC_HELLO}: {error}") from None

    def took(self, message: object) -> None:
        match message:
            case Request(topic=topic) if topic == topics.disconnect_of(NAME):
                for job in self.jobs.values():
                    if job.start is not None and job.start.sender == message.sender:
                        job.start = None  # the job manager has gone; what runs goes on
            case Request(topic=topic) if topic == f"{NAME}.{topics.START_METHOD}":
                self.asked(message)
            case Request() if (refusal := respond_error(message, Errno.ENOSYS)) is not None:
                self.handle.send(refusal)
            case Event(topics.SERVICE_BACK_EVENT, {"service": topics.JOB_MANAGER}):
                self.nursery.start_soon(self.hello)
            case Event(topics.JOB_EXCEPTION_EVENT, {"id": jobid, "severity": severity}):
                if jobid in self.jobs and severity == FATAL:
                    self.jobs[jobid].ended_by(message.payload.get("wait_status"))

    def asked(self, start: Request) -> None:
        """Start a job, or take it up again for the next job manager."""
        payload: Any = start.payload
        job = self.jobs.get(payload["id"])
        if job is not None:
            job.start = start
            for answer in job.said:
                is_start = answer["type"] == "start" and payload["reattach"]
                job.tell(self.handle, answer | {"type": "reattached"} if is_start else answer)
            return
        job = Job(payload["id"], Jobspec.parse_general(payload["jobspec"]), start)
        job.ranks = set(ResourceSet.parse(payload["R"]).ranks)
        self.jobs[job.id] = job
        if payload["reattach"]:  # it was started by an earlier life of this program
            self.fail(job, "exec", "the execution service was restarted, and its tasks are lost")
        self.nursery.start_soon(self.run, job)

    def fail(self, job: Job, kind: str, note: str) -> None:
        job.say(self.handle, "exception", severity=FATAL, type=kind, note=note)
        job.ending.set()

    async def run(self, job: Job) -> None:
        """Say how a job starts, what becomes of it, and at last that its resources are free."""
        wanted = {"key": job_key(job.id, "jobspec"), "flags": 0, "namespace": "primary"}
        whole = await self.handle.call(topics.KVS_LOOKUP, wanted)
        value = base64.b64decode(whole["val"]["data"])  # of a treeobj (RFC 11)
        if environment := parse_jobspec(value).environment:
            # messages leave it out (RFC 27, Alloc); what was updated is in the message alone
            changed = apply_update(job.spec.to_json(), "attributes.system.environment", environment)
            job.spec = Jobspec.parse_general(changed)
        if not job.ending.is_set():
            await self.launch(job)
        async with trio.open_nursery() as limits:
            limits.start_soon(self.limit, job)
            limits.start_soon(self.end, job)
            await self.wait(job)
            limits.cancel_scope.cancel()
        if job.statuses:
            status = max(job.statuses) if job.cause is None else shell_status(job.cause)
            job.say(self.handle, "finish", status=status)
        self.release(job, job.ranks, final=True)
        self.over.append(job.id)
        if len(self.over) > REMEMBERED:
            del self.jobs[self.over.popleft()]

    async def launch(self, job: Job) -> None:
        command = job.spec.tasks[0].command
        try:
            for environment in job.environments():
                process = await open_process(
                    list(command), env=environment, cwd=job.spec.cwd, stdin=subprocess.DEVNULL
                )
                job.processes.append(process)
        except OSError as error:
            self.fail(job, "exec", f"{command[0]}: {error.strerror}")
        else:
            job.say(self.handle, "start")

    async def limit(self, job: Job) -> None:
        """End a job that exceeds its time limit."""
        if job.spec.duration:
            await trio.sleep(job.spec.duration)
            if job.ending.is_set():
                return
            self.fail(job, "timeout", "the job has exceeded its time limit")

    async def end(self, job: Job) -> None:
        """End the tasks when a fatal exception has come."""
        await job.ending.wait()
        for process in job.processes:
            process.terminate()
        await trio.sleep(KILL_S)
        for process in job.processes:
            process.kill()

    async def wait(self, job: Job) -> None:
        """Wait for all tasks; a rank is released when its own have ended."""
        ranks = sorted(job.ranks)
        place = [ranks[at * len(ranks) // job.spec.ntasks] for at in range(len(job.processes))]
        running = Counter(place)

        async def one(process: trio.Process, rank: int) -> None:
            job.statuses.append(wait_status(await process.wait()))
            running[rank] -= 1
            if not running[rank] and job.ranks != {rank}:
                self.release(job, {rank}, final=False)

        async with trio.open_nursery() as tasks:
            for process, rank in zip(job.processes, place, strict=True):
                tasks.start_soon(one, process, rank)

    def release(self, job: Job, ranks: set[int], *, final: bool) -> None:
        job.say(self.handle, "release", ranks=str(Idset.of(ranks)), final=final)
        job.ranks = job.ranks - ranks


def shell_status(status: int) -> int:
    """The status of a shell whose exit code says how a task has ended."""
    return (128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)) << 8


def wait_status(returncode: int) -> int:
    """The status of wait(2): the signal, or 256 times the exit code."""
    return -returncode if returncode < 0 else returncode << 8


async def serve(handle: Handle) -> None:
    """Serve `exec-py.start`. Raises Leave in a group when RFC 32 tells the program to end."""
    handle.register(NAME)
    handle.subscribe(topics.JOB_EXCEPTION_EVENT)
    handle.subscribe(topics.SERVICE_BACK_EVENT)
    async with trio.open_nursery() as nursery:
        service = Service(handle, nursery)
        nursery.start_soon(service.hello)
        with suppress(trio.EndOfChannel):
            while True:
                for message in await handle.receive():
                    service.took(message)


async def main() -> None:
    uri, token = os.environ["FLUX_TRIO_URI"], os.environ["FLUX_TRIO_TOKEN"]
    async with (
        connect_websocket(uri, token) as connection,
        open_remote(NAME, os.getuid(), connection, Clock(time.time, time.monotonic)) as handle,
    ):
        await serve(handle)


if __name__ == "__main__":
    trio.run(main)
