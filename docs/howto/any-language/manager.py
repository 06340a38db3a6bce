"""A job manager in Python: RFC 21, 27 and 32 on one page, on flux-trio's handle.

`python manager.py` inside an instance that has no job manager. It works in turns: it takes what has
come, stores the events that follow from it, and only then says what they lead to. So whatever it
says is durable, and its next life reads back from the eventlogs what this one knew.
"""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass, field
from typing import Any

import trio

from flux_trio.broker import Handle, open_remote
from flux_trio.clock import Clock
from flux_trio.formats import Event as JobEvent
from flux_trio.formats import apply_update, format_event, job_key, parse_eventlog
from flux_trio.messages import (
    Errno,
    Event,
    Flag,
    FluxError,
    Request,
    Response,
    end_of_stream,
    respond,
    respond_error,
    respond_stream,
    service_of,
    topics,
)
from flux_trio.transports import connect_websocket

SUCCESS, ANNOTATE, DENY, CANCEL = range(4)
NEW, DEPEND, PRIORITY, SCHED, RUN, CLEANUP, INACTIVE = range(7)
BACK = {SCHED: PRIORITY}
MOVES = {
    "validate": {NEW: DEPEND},
    "depend": {DEPEND: PRIORITY},
    "priority": {PRIORITY: SCHED},
    "urgency": BACK,
    "jobspec-update": BACK,
    "flux-restart": BACK,
    "alloc": {SCHED: RUN},
    "finish": {RUN: CLEANUP},
    "clean": {CLEANUP: INACTIVE},
}
"""By the name of an event: the states of RFC 21 that it moves a job from, and to."""
FATAL = 0  # the severity of an exception that ends a job
DEFAULT, EXPEDITED = 16, 31  # urgencies
HIGHEST = 2**32 - 1  # the priority of an expedited job
ALL = {"ranks": "all", "final": True}
DURATION = "attributes.system.duration"


class Leave(Exception):
    """The program has to end: it cannot store what has happened."""


@dataclass
class Job:
    id: int
    userid: int
    t_submit: float
    urgency: int
    spec: dict[str, Any]  # the jobspec, as it is now
    state: int = NEW
    priority: int = 0
    annotations: dict[str, Any] = field(default_factory=dict)
    asked: bool = False  # a sched.alloc is open
    canceling: bool = False  # and a sched.cancel was sent
    allocated: bool = False  # it holds resources
    granted: bool = False  # it has got some that it cannot use any more
    freeing: bool = False  # a sched.free is open
    starting: bool = False  # a start was sent, maybe by an earlier life
    running: bool = False  # and is open
    started: bool = False
    finished: bool = False
    released: bool = False

    @property
    def rank(self) -> tuple[int, float, int]:
        """In this order jobs are asked for (RFC 27, Design Criteria)."""
        return -self.priority, self.t_submit, self.id


@dataclass
class Manager:
    handle: Handle
    jobs: dict[int, Job] = field(default_factory=dict)  # the active ones
    last: int = 0  # the greatest job id
    scheduler: str = ""  # the peer that said sched-hello
    is_ready: bool = False
    limit: int | None = None
    executor: str = ""  # the peer that said exec-hello
    service: str = ""  # and the service that it named
    enabled: bool = True
    stopped: bool = False
    ops: list[list[str]] = field(default_factory=list)  # of this turn, to be stored
    unsent: list[Request | Response | Event] = field(default_factory=list)

    # --- events

    def post(self, job: Job, name: str, **context: Any) -> None:
        """Log an event of a job, and let it take effect."""
        event = JobEvent(self.handle.now(), name, context or None)
        self.ops.append(["append", job_key(job.id, "eventlog"), format_event(event)])
        self.apply(job, name, context)
        if name == "exception":
            raised = {"id": job.id, "type": context["type"], "severity": context["severity"]}
            self.unsent.append(Event(topics.JOB_EXCEPTION_EVENT, raised, userid=job.userid))

    def apply(self, job: Job, name: str, context: dict[str, Any]) -> None:
        """Let an event take effect, now or as it is read back."""
        job.state = MOVES.get(name, {}).get(job.state, job.state)
        match name:
            case "priority":
                job.priority = context["priority"]
            case "urgency":
                job.urgency = context["urgency"]
            case "jobspec-update":
                for path, value in context.items():
                    job.spec = apply_update(job.spec, path, value)
            case "alloc" | "free":
                job.allocated = name == "alloc"
            case "start":
                job.started = True
            case "finish":
                job.finished = True
            case "release":
                job.released = context["final"]
            case "exception" if context["severity"] == FATAL:
                job.state = CLEANUP

    def fail(self, job: Job, kind: str, note: str, **more: Any) -> None:
        self.post(job, "exception", type=kind, severity=FATAL, note=note, **more)

    # --- what follows from the states

    def advance(self, job: Job) -> None:
        """Take a job as far as it comes by itself."""
        if job.state == NEW:
            self.post(job, "validate")
        if job.state == DEPEND:
            self.post(job, "depend")
        if job.state == PRIORITY:
            self.prioritize(job)
        if job.state == RUN:
            self.start(job)
        if job.state == CLEANUP:
            self.clean(job)

    def prioritize(self, job: Job) -> None:
        before = job.priority
        self.post(job, "priority", priority=HIGHEST if job.urgency == EXPEDITED else job.urgency)
        if job.asked and not job.priority:
            self.cancel(job)  # it is held
        elif job.asked and job.priority != before:
            self.unsent.append(request(topics.SCHED_PRIORITIZE, jobs=[[job.id, job.priority]]))

    def cancel(self, job: Job) -> None:
        if job.asked and not job.canceling:
            job.canceling = True
            self.unsent.append(request(topics.SCHED_CANCEL, id=job.id))

    def start(self, job: Job) -> None:
        """Start a job, or take it up again after the execution service or this program was away."""
        if not self.service or job.running:
            return
        job.starting = job.running = True
        start = request(
            f"{self.service}.{topics.START_METHOD}",
            Flag.STREAMING,
            id=job.id,
            userid=job.userid,
            jobspec=without_environment(job.spec),
            reattach=job.started and not job.finished,
        )
        self.unsent.append(start)

    def clean(self, job: Job) -> None:
        self.cancel(job)
        if job.asked or job.freeing:
            return
        if job.allocated and not job.released:
            if job.starting and not job.finished:
                self.start(job)  # the final release has to come
                return
            if job.running:
                return
            self.post(job, "release", **ALL)  # no process was started, or all have ended
        if job.allocated or job.granted:
            if self.is_ready:
                job.freeing = True
                self.unsent.append(request(topics.SCHED_FREE, id=job.id))
            return
        self.post(job, "clean")
        del self.jobs[job.id]

    def ask(self) -> None:
        """Ask for the resources of jobs, as many as the scheduler wants to be asked for."""
        if not self.is_ready or self.stopped:
            return
        noutstanding = sum(job.asked for job in self.jobs.values())
        waiting = [job for job in self.waiting() if not job.asked and not job.freeing]
        for job in sorted(waiting, key=lambda job: job.rank):
            if self.limit is not None and noutstanding >= self.limit:
                break
            noutstanding += 1
            job.asked = True
            spec = without_environment(job.spec)
            about: Any = {"priority": job.priority, "userid": job.userid, "t_submit": job.t_submit}
            self.unsent.append(request(topics.SCHED_ALLOC, id=job.id, jobspec=spec, **about))

    def waiting(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state == SCHED and job.priority]

    # --- the scheduler (RFC 27)

    def sched_hello(self, hello: Request) -> None:
        self.lose_scheduler()
        self.scheduler = hello.sender
        for job in self.jobs.values():
            if job.allocated:
                held: dict[str, Any] = {"id": job.id, "priority": job.priority}
                held |= {"userid": job.userid, "t_submit": job.t_submit}
                self.answer(respond_stream(hello, held))
        self.answer(end_of_stream(hello))

    def sched_ready(self, ready: Request) -> None:
        payload: Any = ready.payload
        mode, limit = payload.get("mode"), payload.get("limit")
        is_right = mode == "unlimited" or (mode == "limited" and type(limit) is int and limit > 0)
        if not is_right or ready.sender != self.scheduler:
            raise FluxError(
                Errno.EPROTO, "expected mode and limit of the scheduler that said hello"
            )
        self.is_ready, self.limit = True, limit if mode == "limited" else None
        self.answer(respond(ready, {"count": len(self.waiting())}))

    def lose_scheduler(self) -> None:
        """What it has not answered is lost; what jobs hold, the next one learns by its hello."""
        self.scheduler, self.is_ready = "", False
        for job in self.jobs.values():
            job.asked = job.canceling = job.freeing = job.granted = False
            job.annotations = {}

    def alloc_answered(self, answer: dict[str, Any]) -> None:
        job = self.jobs.get(answer["id"])
        if job is None or not job.asked:
            raise FluxError(Errno.EPROTO, f"{topics.SCHED_ALLOC} of job {answer['id']} is not open")
        kind = answer["type"]
        if "annotations" in answer:
            job.annotations = merged(job.annotations, answer["annotations"])
        if kind != ANNOTATE:
            job.asked = job.canceling = False
        if kind == SUCCESS and job.state == SCHED:
            more = {"annotations": job.annotations} if job.annotations else {}
            self.post(job, "alloc", **more)
        elif kind == SUCCESS:
            job.granted = True
        elif kind == DENY and job.state != CLEANUP:
            job.annotations = {}
            self.fail(job, "alloc", answer.get("note", ""))
        elif kind == CANCEL:
            job.annotations = {}

    def free_answered(self, answer: dict[str, Any]) -> None:
        job = self.jobs.get(answer["id"])
        if job is None or not job.freeing:
            raise FluxError(Errno.EPROTO, f"{topics.SCHED_FREE} of job {answer['id']} is not open")
        job.freeing = job.granted = False
        if job.allocated:
            self.post(job, "free")

    # --- the execution service (RFC 32)

    def exec_hello(self, hello: Request) -> None:
        payload: Any = hello.payload
        if any(job.running for job in self.jobs.values()):
            raise FluxError(Errno.EINVAL, f"{self.service} has start requests outstanding")
        self.executor, self.service = hello.sender, payload["service"]
        self.answer(respond(hello))

    def lose_executor(self) -> None:
        self.executor = self.service = ""
        for job in self.jobs.values():
            job.running = False

    def start_answered(self, answer: dict[str, Any]) -> None:
        job = self.jobs.get(answer["id"])
        if job is None or not job.running:
            raise FluxError(Errno.EPROTO, f"the start of job {answer['id']} is not open")
        data = answer["data"]
        match answer["type"]:
            case "start" if not job.started:
                self.post(job, "start")
            case "finish" if not job.finished:
                self.post(job, "finish", status=data["status"])
            case "release":
                self.post(job, "release", ranks=data["ranks"], final=data["final"])
                if data["final"]:
                    job.running = False
                    if job.state == RUN:
                        self.fail(job, "exec", "all resources were released before finish")
            case "exception":
                note = data.get("note", "")
                self.post(job, "exception", type=data["type"], severity=data["severity"], note=note)

    # --- users

    def submit(self, submit: Request) -> None:
        """The jobs are stored already; those that are refused are removed."""
        payload: Any = submit.payload
        errors = []
        for each in payload["jobs"]:
            job = Job(
                each["id"], each["userid"], each["t_submit"], each["urgency"], each["jobspec"]
            )
            self.last = max(self.last, job.id)
            if job.id in self.jobs:
                continue  # this life has found it in the kvs
            if refusal := self.refusal(job):
                errors.append([job.id, refusal])
                self.post(job, "invalidate")
                self.ops.append(["unlink", job_key(job.id, "")[:-1]])
            else:
                self.jobs[job.id] = job
        self.answer(respond(submit, {"errors": errors}))

    def refusal(self, job: Job) -> str:
        system = job.spec["attributes"].get("system", {})
        if not self.enabled:
            return "job submission is disabled"
        if "queue" in system:
            return f"there is no queue {system['queue']}"
        return "dependencies are not supported" if "dependencies" in system else ""

    def job_of(self, asked: Request) -> Job:
        """Return the job that a user may do something to. Raises FluxError."""
        payload: Any = asked.payload
        job = self.jobs.get(payload["id"])
        if job is None:
            raise FluxError(Errno.ENOENT, f"there is no active job {payload['id']}")
        if not asked.is_owner and asked.userid != job.userid:
            raise FluxError(Errno.EPERM, f"job {job.id} is of another user")
        return job

    def raise_exception(self, asked: Request) -> None:
        payload: Any = asked.payload
        job = self.job_of(asked)
        about = {"note": payload.get("note", ""), "userid": asked.userid}
        if not 0 <= payload["severity"] <= 7:
            raise FluxError(Errno.EINVAL, f"severity: expected 0 to 7, got {payload['severity']}")
        self.post(job, "exception", type=payload["type"], severity=payload["severity"], **about)
        self.answer(respond(asked))

    def urgency(self, asked: Request) -> None:
        payload: Any = asked.payload
        job = self.job_of(asked)
        old, new = job.urgency, payload["urgency"]
        if not 0 <= new <= EXPEDITED or (new > DEFAULT and not asked.is_owner):
            raise FluxError(Errno.EINVAL, f"urgency: expected 0 to {EXPEDITED}, got {new}")
        if job.state > SCHED:
            raise FluxError(Errno.EINVAL, f"job {job.id} has got its resources")
        if new != old:
            self.post(job, "urgency", urgency=new, userid=asked.userid)
        self.answer(respond(asked, {"old_urgency": old}))

    async def update(self, asked: Request) -> None:
        """A job gets another time limit, if the scheduler has nothing against it once it runs."""
        payload: Any = asked.payload
        job = self.job_of(asked)
        updates = payload["updates"]
        if list(updates) != [DURATION] or job.state > RUN:
            raise FluxError(Errno.EINVAL, f"expected {DURATION} of a job that waits or runs")
        if type(updates[DURATION]) not in (int, float) or updates[DURATION] < 0:
            raise FluxError(Errno.EINVAL, f"{DURATION}: expected seconds, got {updates[DURATION]}")
        expiration = await self.expire(job, updates[DURATION]) if job.state == RUN else None
        self.post(job, "jobspec-update", **updates)
        if expiration is not None:
            self.post(job, "resource-update", expiration=expiration)
        self.cancel(job)  # it is asked for again, with the new jobspec
        self.answer(respond(asked))

    async def expire(self, job: Job, duration: float) -> int:
        """Ask for another expiration of what a job holds, and return it. Raises FluxError."""
        found = await self.insist(topics.KVS_LOOKUP, {"key": job_key(job.id, "R")})
        begin: float = json.loads(found["value"])["execution"]["starttime"]
        expiration = math.ceil(begin + duration)
        if self.is_ready:
            try:
                told = {"id": job.id, "expiration": expiration}
                await self.handle.call(topics.SCHED_EXPIRATION, told)
            except FluxError as error:
                if error.errnum != Errno.ENOSYS:  # that is: it does not mind
                    raise
        return expiration

    def queue_start(self, asked: Request) -> None:
        payload: Any = asked.payload
        self.stopped = not payload["start"]
        if self.stopped:
            for job in self.jobs.values():
                self.cancel(job)
        self.answer(respond(asked))

    def queue_enable(self, asked: Request) -> None:
        payload: Any = asked.payload
        self.enabled = payload["enable"]
        self.answer(respond(asked))

    # --- messages

    def answer(self, response: Response | None) -> None:
        if response is not None:
            self.unsent.append(response)

    async def insist(self, topic: str, payload: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self.handle.call(topic, payload)
        except FluxError as error:
            raise Leave(f"{topic}: {error}") from None

    async def took(self, message: object) -> None:
        match message:
            case Request(topic=topics.JOB_MANAGER_DISCONNECT):
                if message.sender == self.scheduler:
                    self.lose_scheduler()
                if message.sender == self.executor:
                    self.lose_executor()
            case Request():
                try:
                    await self.asked(message)
                except FluxError as error:
                    self.answer(respond_error(message, error.errnum, error.text))
            case Response():
                self.answered(message)

    async def asked(self, asked: Request) -> None:
        for_owner = {
            topics.SCHED_HELLO: self.sched_hello,
            topics.SCHED_READY: self.sched_ready,
            topics.EXEC_HELLO: self.exec_hello,
            topics.JOB_SUBMIT: self.submit,
            topics.JOB_QUEUE_START: self.queue_start,
            topics.JOB_QUEUE_ENABLE: self.queue_enable,
        }
        for_users = {topics.JOB_RAISE: self.raise_exception, topics.JOB_URGENCY: self.urgency}
        if asked.topic in for_owner and not asked.is_owner:
            raise FluxError(Errno.EPERM, f"{asked.topic} is for the owner of the instance")
        if method := (for_owner | for_users).get(asked.topic):
            method(asked)
        elif asked.topic == topics.JOB_UPDATE:
            await self.update(asked)
        elif asked.topic == topics.JOB_GETINFO:
            self.answer(respond(asked, {"max_jobid": self.last}))
        else:
            raise FluxError(Errno.ENOSYS, f"{asked.topic}: unknown")

    def answered(self, response: Response) -> None:
        """Take an answer of the scheduler or the execution service; an error ends its service."""
        is_of_sched = service_of(response.topic) == topics.SCHED
        lose = self.lose_scheduler if is_of_sched else self.lose_executor
        if not (self.scheduler if is_of_sched else self.service):
            return  # it was asked by somebody who is not there any more
        try:
            if response.errnum:
                raise FluxError(response.errnum, response.error_text)
            answer: Any = response.payload
            match response.topic:
                case topics.SCHED_ALLOC:
                    self.alloc_answered(answer)
                case topics.SCHED_FREE:
                    self.free_answered(answer)
                case _ if not is_of_sched:
                    self.start_answered(answer)
        except FluxError as error:
            self.handle.log(3, f"{response.topic}: {error}")
            lose()

    async def end_turn(self) -> None:
        """Store what has happened, and then say what follows from it."""
        for job in list(self.jobs.values()):
            self.advance(job)
        self.ask()
        if self.ops:
            ops, self.ops = self.ops, []
            await self.insist(topics.KVS_COMMIT, {"ops": ops})
        unsent, self.unsent = self.unsent, []
        for message in unsent:
            self.handle.send(message)

    async def read_back(self) -> None:
        """Read what an earlier life has stored, and go on from there."""
        found = await self.insist(topics.KVS_OWN.dir, {"prefix": "job"})
        for key in found["keys"]:
            *number, name = key.split(".")[1:]
            if name != "eventlog" or len(number) != 4:
                continue
            jobid = int("".join(number), 16)
            self.last = max(self.last, jobid)
            log = await self.insist(topics.KVS_LOOKUP, {"key": key})
            submit, *events = parse_eventlog(log["value"])
            if events and events[-1].name == "clean":
                continue
            about: Any = submit.context
            spec = await self.insist(topics.KVS_LOOKUP, {"key": job_key(jobid, "jobspec")})
            given = (about["userid"], submit.timestamp, about["urgency"], json.loads(spec["value"]))
            self.jobs[jobid] = job = Job(jobid, *given)
            for event in events:
                self.apply(job, event.name, dict(event.context or {}))
            job.starting = job.allocated
            if events:
                self.post(job, "flux-restart")


def request(topic: str, flags: int = 0, **payload: Any) -> Request:
    return Request(topic, payload, flags=flags)


def without_environment(spec: dict[str, Any]) -> dict[str, Any]:
    """A jobspec for messages (RFC 27, Alloc)."""
    attributes = dict(spec["attributes"])
    system = {key: attributes["system"][key] for key in attributes.get("system", {})}
    system.pop("environment", None)
    return spec | {"attributes": attributes | {"system": system}}


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The annotations of a job after new ones (RFC 27, Annotate)."""
    found = dict(old)
    for key, value in new.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            before = found.get(key)
            found[key] = merged(before if isinstance(before, dict) else {}, value)
        else:
            found[key] = value
    return found


async def serve(handle: Handle) -> None:
    """Serve `job-manager.*`. Raises Leave when it cannot store what has happened."""
    manager = Manager(handle)
    await manager.read_back()
    handle.register(topics.JOB_MANAGER)
    while True:
        await manager.end_turn()
        for message in await handle.receive():
            await manager.took(message)


async def main() -> None:
    uri, token = os.environ["FLUX_TRIO_URI"], os.environ["FLUX_TRIO_TOKEN"]
    async with (
        connect_websocket(uri, token) as connection,
        open_remote("manager", os.getuid(), connection, Clock(time.time, time.monotonic)) as handle,
    ):
        await serve(handle)


if __name__ == "__main__":
    trio.run(main)
