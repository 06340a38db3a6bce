"""A scheduler that stands in for ours, and does what an act says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from flux_trio.broker import Handle
from flux_trio.config import DURATION_KEY
from flux_trio.editions.kvs import CommitValues
from flux_trio.editions.rfc27 import AllocAnswer, AllocType, FreeAnswer, Hello, Ready
from flux_trio.formats import ResourceSet, format_fluid, format_r, job_key, value_at
from flux_trio.lab.exercise.stage import Stage, Stuck
from flux_trio.lab.exercise.substitute_services import StandIn
from flux_trio.messages import Errno, Request, respond, respond_error, respond_stream, topics

NAME: Final = "other-scheduler"
OWED: Final = {
    topics.SCHED_ALLOC: "27.alloc.1",
    topics.SCHED_CANCEL: "27.exceptions.2",
    topics.SCHED_EXPIRATION: "27.expiration.1",
    topics.SCHED_FREE: "27.free.1",
}
"""The clause that is broken if a request does not come."""


class OtherScheduler(StandIn):
    """Grants, denies and tells what it is told to; each job gets a core of a node of its own."""

    def __init__(self, stage: Stage, handle: Handle) -> None:
        super().__init__(stage, handle)
        self.held: list[dict[str, Any]] = []
        """What the last hello has told."""
        self._waiting: list[Request] = []

    async def hello(self) -> None:
        """Say hello, and keep what it tells."""
        hello = self._stage.edition.sched_hello.write(Hello(partial_ok=True))
        with self._stage.deadline():
            async with self._handle.stream(topics.SCHED_HELLO, hello) as told:
                self.held = [each async for each in told]
            return
        raise Stuck(f"no end of the answers to {topics.SCHED_HELLO}", "27.hello.6")

    async def serve(self, limit: int | None = None) -> object:
        """Say hello and ready; return `count`, how many jobs wait."""
        await self.hello()
        edition = self._stage.edition
        mode = Ready("unlimited") if limit is None else Ready("limited", limit)
        wanted = edition.sched_ready.write(mode)
        answer = await self._stage.call(topics.SCHED_READY, wanted, self._handle)
        return (answer or {}).get("count")

    async def refused(self, ready: dict[str, Any]) -> None:
        """Say that it is ready, in a way that has to be refused. Raises Stuck."""
        await self._stage.refused(topics.SCHED_READY, self._handle, **ready)

    async def wanted(
        self, jobid: int, topic: str = topics.SCHED_ALLOC, clause: str = ""
    ) -> Request:
        """Return the next request about a job; those about others are kept. Raises Stuck."""
        what = f"{topic} of job {format_fluid(jobid, 'f58')}"
        with self._stage.deadline():
            while True:
                for at, request in enumerate(self._waiting):
                    if request.topic == topic and about(request) == jobid:
                        return self._waiting.pop(at)
                self._waiting += filter(_is_request, await self._handle.receive())
        raise Stuck(
            f"{what}: not within {self._stage.deadline_s:g} s", clause or OWED.get(topic, "")
        )

    async def grant(self, asked: Request, rank: int = 0, **annotations: Any) -> None:
        """Give a job a core of a node, when its R is stored."""
        jobid, now = about(asked), self._stage.now()
        payload = asked.payload if isinstance(asked.payload, dict) else {}
        duration = value_at(payload.get("jobspec"), DURATION_KEY)
        machine, end = self._stage.machine, now + duration if isinstance(duration, float) else 0.0
        core = next(iter(machine.cores(rank)))
        resources = ResourceSet.build([(rank, 1 << core, 0)], machine.hostname)
        resources = resources.with_times(now, end).with_nslots(1)
        put = CommitValues([["put", job_key(jobid, "R"), format_r(resources)]])
        await self._handle.call(topics.KVS_COMMIT, self._stage.edition.kvs.commit(put))
        given = annotations or None
        self._tell(asked, AllocAnswer(jobid, AllocType.SUCCESS, given, R=resources))

    def annotate(self, asked: Request, annotations: dict[str, Any]) -> None:
        self._tell(asked, self._of(asked, AllocType.ANNOTATE, annotations=annotations))

    def deny(self, asked: Request, note: str) -> None:
        self._tell(asked, self._of(asked, AllocType.DENY, note=note))

    def withdraw(self, asked: Request) -> None:
        """Say that the request is canceled."""
        self._tell(asked, self._of(asked, AllocType.CANCEL))

    def fail(self, asked: Request) -> None:
        """Answer with an error, which ends the scheduler's service (RFC 27, Implementation)."""
        self.answer(respond_error(asked, Errno.EINVAL, "an exercise"))

    async def freed(self, jobid: int, clause: str = "") -> None:
        """Wait for the request to free what a job holds, and answer it. Raises Stuck."""
        self.answer_free(await self.wanted(jobid, topics.SCHED_FREE, clause))

    def answer_free(self, request: Request) -> None:
        codec = self._stage.edition.free_answer
        if codec is not None:
            self.answer(respond(request, codec.write(FreeAnswer(about(request)))))

    @staticmethod
    def _of(asked: Request, kind: AllocType, **more: Any) -> AllocAnswer:
        return AllocAnswer(about(asked), kind, **more)

    def _tell(self, asked: Request, answer: AllocAnswer) -> None:
        self.answer(respond_stream(asked, self._stage.edition.alloc_answer.write(answer)))


def about(request: Request) -> int:
    """Return the job that a request is about; 0 if it does not say so."""
    payload = request.payload if isinstance(request.payload, dict) else {}
    found = payload.get("id")
    return found if isinstance(found, int) else 0


def _is_request(message: object) -> bool:
    return isinstance(message, Request)


@asynccontextmanager
async def scheduling(stage: Stage, limit: int | None = None) -> AsyncIterator[OtherScheduler]:
    """Have a scheduler in place of ours that does what the act says; at the end ours is back."""
    await stage.remove(topics.SCHED)
    async with stage.visit(NAME) as handle:
        handle.register(topics.SCHED)
        other = OtherScheduler(stage, handle)
        await other.serve(limit)
        yield other
    await stage.load(topics.SCHED)
