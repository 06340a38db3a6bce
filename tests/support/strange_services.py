"""Services that others would write: an execution service that pretends, and some that lie."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import trio

from flux_trio.broker import Handle
from flux_trio.editions import Edition
from flux_trio.editions.rfc28 import Acquire
from flux_trio.formats import Idset, ResourceSet, job_key, parse_r
from flux_trio.messages import Event, FluxError, Payload, Request, Response, topics
from tests.support.kvs_words import lookup_of, value_of

RUNS_S: Final = (0.0, 0.5, 2.0, 15.0, 60.0, 200.0)
"""How long jobs run."""

Lie = Callable[[int], dict[str, Any] | str | None]
EXEC_LIES: Final[tuple[Lie, ...]] = (
    lambda jobid: {"id": jobid, "type": "start"},
    lambda jobid: {"id": jobid, "type": "begun", "data": {}},
    lambda jobid: {"id": jobid, "type": "finish", "data": {"status": "well"}},
    lambda jobid: {"id": jobid, "type": "release", "data": {"final": True}},
    lambda jobid: {"id": jobid, "type": "release", "data": {"ranks": "some", "final": True}},
    lambda jobid: {"id": jobid + 1, "type": "start", "data": {}},
    lambda jobid: {"id": jobid, "type": "exception", "data": {"type": "exec", "note": 7}},
    lambda _jobid: None,
)
SCHED_LIES: Final[tuple[Lie, ...]] = (
    lambda jobid: {"id": jobid},
    lambda jobid: {"id": jobid, "type": 7},
    lambda jobid: {"id": jobid, "type": 0},
    lambda jobid: {"id": jobid, "type": "SUCCESS"},
    lambda jobid: {"id": jobid + 1, "type": 2, "note": "no"},
    lambda jobid: {"id": jobid, "type": 1, "annotations": "soon"},
    lambda _jobid: None,
)


class ExecutionService:
    """An execution service that pretends to run jobs; with a lie, it answers each start so."""

    def __init__(
        self, handle: Handle, name: str, draw: random.Random, lie: Lie | None, edition: Edition
    ) -> None:
        self._handle = handle
        self._name = name
        self._random = draw
        self._lie = lie
        self._edition = edition
        self._life = 0  # of the job manager
        self._running: dict[int, trio.CancelScope] = {}

    async def hello(self) -> None:
        """Register, and say hello. Raises FluxError if it is refused."""
        self._handle.register(self._name)
        self._handle.subscribe(topics.JOB_EXCEPTION_EVENT)
        self._handle.subscribe(topics.SERVICE_BACK_EVENT)
        await self._handle.call(topics.EXEC_HELLO, {"service": self._name})

    async def run(self, scope: trio.CancelScope) -> None:
        """Serve until `scope` is cancelled."""
        with scope:
            async with trio.open_nursery() as nursery:
                with suppress(trio.EndOfChannel):  # the handle was closed first
                    while True:
                        for message in await self._handle.receive():
                            self._take(message, nursery)

    def _take(self, message: Any, nursery: trio.Nursery) -> None:
        match message:
            case Request(topic=topic) if topic == topics.disconnect_of(self._name):
                self._forget()
            case Request(topic=topic) if topic == f"{self._name}.{topics.START_METHOD}":
                if self._lie is None:
                    nursery.start_soon(self._execute, message, self._life)
                else:
                    self._handle.send(answer_to(message, self._lie(_job_of(message))))
            case Event(topic=topics.SERVICE_BACK_EVENT, payload={"service": topics.JOB_MANAGER}):
                nursery.start_soon(self._hello_again)
            case Event(topic=topics.JOB_EXCEPTION_EVENT, payload={"severity": 0, "id": jobid}):
                if jobid in self._running:
                    self._running[jobid].cancel()

    def _forget(self) -> None:
        """The job manager has gone, and nobody hears the answers; what runs goes on."""
        self._life += 1
        for scope in self._running.values():
            scope.cancel()

    async def _hello_again(self) -> None:
        with suppress(FluxError):
            await self._handle.call(topics.EXEC_HELLO, {"service": self._name})

    async def _execute(self, start: Request, life: int) -> None:
        await trio.lowlevel.checkpoint()  # who has left meanwhile says nothing any more
        jobid = _job_of(start)
        if not _payload_of(start)["reattach"]:
            self._say(start, life, "start")
        elif self._edition.tells_reattached:
            self._say(start, life, "reattached")
        self._running[jobid] = scope = trio.CancelScope()
        with scope:
            await trio.sleep(self._random.choice(RUNS_S))
        if self._running.get(jobid) is scope:
            del self._running[jobid]
        left = list((await self._resources_of(start)).ranks)
        self._say(start, life, "finish", status=0)
        if len(left) > 1 and self._random.random() < 0.5:
            self._say(start, life, "release", ranks=str(left.pop()), final=False)
            await trio.sleep(self._random.choice((0.0, 1.0)))
        self._say(start, life, "release", ranks=str(Idset.of(left)), final=True)

    async def _resources_of(self, start: Request) -> ResourceSet:
        """Return the R of the request, as today's editions have it, or the one that is stored."""
        found = _payload_of(start).get("R")
        if found is not None:
            return ResourceSet.parse(found)
        stored = lookup_of(job_key(_job_of(start), "R"))
        return parse_r(value_of(await self._handle.call(topics.KVS_LOOKUP, stored)))

    def _say(self, start: Request, life: int, kind: str, **data: Any) -> None:
        if life == self._life:
            told = {"id": _job_of(start), "type": kind, "data": data}
            self._handle.send(answer_to(start, told))


def acquiring(edition: Edition) -> Payload:
    """Return the payload of resource.acquire."""
    return edition.acquire.write(Acquire("default"))


async def schedule_badly(handle: Handle, lie: Lie, edition: Edition) -> None:
    """Serve as the scheduler, and answer the first sched.alloc with a lie."""
    handle.register(topics.SCHED)
    async with handle.stream(topics.RESOURCE_ACQUIRE, acquiring(edition)) as told:
        await anext(told)
        async with handle.stream(topics.SCHED_HELLO) as jobs:
            async for _ in jobs:
                pass
        await handle.call(topics.SCHED_READY, {"mode": "unlimited"})
        while True:
            for request in await handle.receive():
                if isinstance(request, Request) and request.topic == topics.SCHED_ALLOC:
                    handle.send(answer_to(request, lie(_job_of(request))))
                    await trio.sleep_forever()


def _payload_of(request: Request) -> dict[str, Any]:
    assert isinstance(request.payload, dict)
    return request.payload


def _job_of(request: Request) -> int:
    return int(_payload_of(request)["id"])


def answer_to(request: Request, payload: Any) -> Response:
    """Return an answer with any payload."""
    return Response(request.topic, payload, matchtag=request.matchtag, routes=request.routes)
