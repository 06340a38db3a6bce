"""Acts in which a client stands in for a service: it refuses what the service never refuses, or
answers when the act says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from flux_trio.broker import Handle
from flux_trio.editions.kvs import CommitValues
from flux_trio.editions.rfc27 import AllocType, Free
from flux_trio.editions.rfc28 import Change, Grown, Shrunk
from flux_trio.editions.rfc32 import StartType
from flux_trio.formats import Idset, Jobspec
from flux_trio.lab.exercise.acts import Acts, Order, where_targets_are_taken
from flux_trio.lab.exercise.refusing import WHY
from flux_trio.lab.exercise.stage import Stage, Stuck
from flux_trio.messages import (
    Errno,
    Payload,
    Request,
    Response,
    respond,
    respond_error,
    respond_stream,
    service_of,
    topics,
)

OTHER_EXEC: Final = "other-exec"

STAND_IN_ACTS: Final = Acts()


class StandIn:
    """A client that holds the name of a service."""

    def __init__(self, stage: Stage, handle: Handle) -> None:
        self._stage = stage
        self._handle = handle

    async def asked(self, topic: str) -> Request:
        """Return the next request with `topic`; others get no answer. Raises Stuck."""
        found = await self._next(Request, topic)
        assert isinstance(found, Request)
        return found

    async def _next(self, kind: type[Request | Response], topic: str) -> Request | Response:
        with self._stage.deadline():
            while True:
                for message in await self._handle.receive():
                    if isinstance(message, kind) and message.topic == topic:
                        return message
        raise Stuck(f"{topic} of the program: not within {self._stage.deadline_s:g} s")

    def tell(self, topic: str, payload: Payload) -> None:
        """Send the program a request as the job manager does."""
        self._handle.send(Request(topic, payload))

    async def allocated(self) -> tuple[object, object]:
        """Return the job id and the type of the next last answer to a sched.alloc. Raises Stuck."""
        while True:
            payload = (await self._next(Response, topics.SCHED_ALLOC)).payload
            found = payload if isinstance(payload, dict) else {}
            if found.get("type") != AllocType.ANNOTATE:
                return found.get("id"), found.get("type")

    def say(self, start: Request, kind: StartType, **data: object) -> None:
        """Answer the start of a job as an execution service does."""
        assert isinstance(start.payload, dict)
        told = {"id": start.payload["id"], "type": kind, "data": data}
        self.answer(respond_stream(start, told))

    def finish(self, start: Request, ranks: str) -> None:
        """Say that a job has ended, and released its ranks."""
        self.say(start, StartType.FINISH, status=0)
        self.say(start, StartType.RELEASE, ranks=ranks, final=True)

    def answer(self, response: Response | None) -> None:
        """Send the response to a request that wants one."""
        assert response is not None
        self._handle.send(response)

    def change(self, acquire: Request, change: Change) -> None:
        """Send a change of the resources to the program, as the resource service would."""
        self.answer(respond_stream(acquire, self._stage.edition.changes.write((change,))))

    def end(self, request: Request) -> None:
        """End the stream of responses to `request` with ENODATA."""
        self.answer(respond_error(request, Errno.ENODATA))

    async def refuse(self, request: Request, clause: str) -> None:
        """Refuse a request of the program, and wait until it has ended, as `clause` says.

        Raises Stuck.
        """
        self.answer(respond_error(request, Errno.EPERM, WHY))
        try:
            await self._stage.left(request.topic, clause)
        finally:
            await self.asked(topics.disconnect_of(service_of(request.topic)))


@asynccontextmanager
async def standing_in(stage: Stage, service: str) -> AsyncIterator[StandIn]:
    """Have a client in place of a module while the program starts and ends.

    At the end the module and the program run again.
    """
    await stage.end_program(service)
    await stage.call(topics.MODULE_REMOVE, {"name": service})
    try:
        async with stage.visit(f"{service}-stand-in") as handle:
            handle.register(service)
            await stage.program.start()
            yield StandIn(stage, handle)
    finally:
        await stage.call(topics.MODULE_LOAD, {"name": service})
    await stage.serve()
    await stage.submit()


@asynccontextmanager
async def executing(stage: Stage) -> AsyncIterator[StandIn]:
    """Have a client in place of the execution service, which ends no job before it is told to."""
    async with stage.visit(OTHER_EXEC) as handle:
        handle.register(OTHER_EXEC)
        await handle.call(topics.EXEC_HELLO, {"service": OTHER_EXEC})
        yield StandIn(stage, handle)


START: Final = f"{OTHER_EXEC}.{topics.START_METHOD}"


ID: Final = 3 << 60  # beyond 2^53, as ids become; those that follow are the same as doubles


class _Jobs:
    """Jobs on all nodes that the stand-in of a job manager asks for; their ids are ID and more."""

    def __init__(self, stage: Stage, manager: StandIn) -> None:
        self.manager = manager
        self._stage = stage
        jobspec = Jobspec.from_command(["true"], nnodes=stage.machine.nnodes, exclusive=True)
        self._job = {"userid": 0, "t_submit": 1.0, "jobspec": jobspec.json}

    async def begin(self) -> None:
        """Answer the program's hello and ready."""
        self.manager.end(await self.manager.asked(topics.SCHED_HELLO))
        self.manager.answer(respond(await self.manager.asked(topics.SCHED_READY), {"count": 0}))

    def ask(self, at: int, priority: int = 16) -> None:
        """Request resources for a job."""
        job = self._job | {"id": ID + at, "priority": priority}
        self.manager.tell(topics.SCHED_ALLOC, job)

    def free(self, at: int) -> None:
        """Give back what a job holds, all there is."""
        free = self._stage.edition.free.write(Free(ID + at, self._stage.machine))
        self.manager.tell(topics.SCHED_FREE, free)

    async def granted(self) -> int:
        """Return which job has got the resources next. Raises Stuck if it is refused."""
        jobid, kind = await self.manager.allocated()
        if kind != AllocType.SUCCESS or not isinstance(jobid, int):
            text = f"job {jobid}: type {kind} answers its request; expected {AllocType.SUCCESS:d}"
            raise Stuck(text, "28.criteria.3")
        return jobid - ID


@STAND_IN_ACTS.act(
    "priorities of several waiting jobs change in one request",
    "each has its new priority, whatever its place in the list; unknown jobs are ignored",
    ("27.prioritize.6", "27.prioritize.7"),
    frozenset({Order.FIFO, Order.PRIORITY}),
)
async def several_priorities(stage: Stage) -> None:
    """The job manager changes the priorities of many jobs at once (RFC 27, Prioritize)."""
    async with standing_in(stage, topics.JOB_MANAGER) as manager:
        jobs = _Jobs(stage, manager)
        await jobs.begin()
        for at in range(6):
            jobs.ask(at)
            if not at:
                await jobs.granted()
        jobs.ask(6, 2**31 + 1)
        changes = [(4, 17), (99, 5), (2, 2**32 - 1), (1, 1), (5, 2**31), (98, 2**32 - 1), (3, 18)]
        manager.tell(topics.SCHED_PRIORITIZE, {"jobs": [[ID + at, new] for at, new in changes]})
        found = [0]
        expected = [0, 2, 6, 5, 3, 4, 1]
        for _ in expected[1:]:
            jobs.free(found[-1])
            found.append(await jobs.granted())
        if found != expected:
            text = f"jobs got resources in the order {found}; expected {expected}"
            raise Stuck(text, "27.prioritize.6")
        await stage.program.end()


@STAND_IN_ACTS.act(
    "a cancel comes when the answer is under way",
    "it is ignored, and the job keeps what it has",
    ("27.cancel.6",),
)
async def cancel_comes_too_late(stage: Stage) -> None:
    """The job manager cancels a request when its SUCCESS is under way (RFC 27, Cancel)."""
    async with standing_in(stage, topics.JOB_MANAGER) as manager:
        jobs = _Jobs(stage, manager)
        await jobs.begin()
        jobs.ask(1)
        await manager.allocated()
        manager.tell(topics.SCHED_CANCEL, {"id": ID + 1})
        jobs.ask(2)
        # what the program stores for job 2 is stored, and heard of, before it answers about job 4
        for at in (3, 4):
            jobs.ask(at)
            await _canceled(manager, at)
            put = CommitValues([["put", "exercise", ""]])
            await stage.call(topics.KVS_COMMIT, stage.edition.kvs.commit(put))
        await _canceled(manager, 2)
        await stage.program.end()


async def _canceled(manager: StandIn, at: int) -> None:
    """Cancel the request of a job; Stuck unless that is what comes of it, and of no other one."""
    manager.tell(topics.SCHED_CANCEL, {"id": ID + at})
    if (found := await manager.allocated()) != (ID + at, AllocType.CANCEL):
        text = "a job has all nodes, and its cancel came too late; for the next one"
        raise Stuck(f"{text} expected {AllocType.CANCEL:d}, got {found[1]}", "27.cancel.6")


@STAND_IN_ACTS.act("the program's hello is refused", "it ends", ("27.hello.17",))
async def hello_refused(stage: Stage) -> None:
    """The job manager refuses sched-hello (RFC 27, Hello)."""
    async with standing_in(stage, topics.JOB_MANAGER) as manager:
        await manager.refuse(await manager.asked(topics.SCHED_HELLO), "27.hello.17")


@STAND_IN_ACTS.act("the program's ready is refused", "it ends", ("27.ready.15",))
async def ready_refused(stage: Stage) -> None:
    """The job manager refuses sched-ready (RFC 27, Ready)."""
    async with standing_in(stage, topics.JOB_MANAGER) as manager:
        manager.end(await manager.asked(topics.SCHED_HELLO))
        await manager.refuse(await manager.asked(topics.SCHED_READY), "27.ready.15")


@STAND_IN_ACTS.act(
    "the release of a node is refused", "it ends", ("28.release.10",), where=where_targets_are_taken
)
async def release_refused(stage: Stage) -> None:
    """The resource service takes a node away, and refuses its release (RFC 28, Release Request)."""
    before = stage.nready
    async with standing_in(stage, topics.RESOURCE) as resource:
        acquire = await resource.asked(topics.RESOURCE_ACQUIRE)
        resource.change(acquire, Grown(stage.machine, stage.machine.ranks, Idset()))
        await stage.ready(before)
        resource.change(acquire, Shrunk(Idset.of([1])))
        await resource.refuse(await resource.asked(topics.RESOURCE_RELEASE), "28.release.10")
