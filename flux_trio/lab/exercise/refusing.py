"""Acts in which a client stands in for a service, and refuses what the service never refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from flux_trio.broker import Handle
from flux_trio.editions import CLASSIC
from flux_trio.editions.rfc28 import Change, Grown, Shrunk
from flux_trio.formats import Idset
from flux_trio.lab.exercise.stage import SCHED_MACHINE, Stage, Stuck
from flux_trio.messages import (
    Errno,
    Request,
    Response,
    respond_error,
    respond_stream,
    service_of,
    topics,
)

WHY: Final = "refused by an exercise"


class StandIn:
    """A client that holds the name of a service."""

    def __init__(self, stage: Stage, handle: Handle) -> None:
        self._stage = stage
        self._handle = handle

    async def asked(self, topic: str) -> Request:
        """Return the next request with `topic`; others get no answer. Raises Stuck."""
        with self._stage.deadline():
            while True:
                for message in await self._handle.receive():
                    if isinstance(message, Request) and message.topic == topic:
                        return message
        raise Stuck(f"{topic} of the program: not within {self._stage.deadline_s:g} s")

    def answer(self, response: Response | None) -> None:
        """Send the response to a request that wants one."""
        assert response is not None
        self._handle.send(response)

    def change(self, acquire: Request, change: Change) -> None:
        """Send a change of the resources to the program, as the resource service would."""
        self.answer(respond_stream(acquire, CLASSIC.changes.write((change,))))

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
            stage.stand_ins.add(handle.name)
            handle.register(service)
            await stage.program.start()
            yield StandIn(stage, handle)
    finally:
        await stage.call(topics.MODULE_LOAD, {"name": service})
    await stage.serve()
    await stage.submit()


async def hello_refused(stage: Stage) -> None:
    """The job manager refuses sched-hello (RFC 27, Hello)."""
    async with standing_in(stage, topics.JOB_MANAGER) as manager:
        await manager.refuse(await manager.asked(topics.SCHED_HELLO), "27.hello.17")


async def ready_refused(stage: Stage) -> None:
    """The job manager refuses sched-ready (RFC 27, Ready)."""
    async with standing_in(stage, topics.JOB_MANAGER) as manager:
        manager.end(await manager.asked(topics.SCHED_HELLO))
        await manager.refuse(await manager.asked(topics.SCHED_READY), "27.ready.15")


async def release_refused(stage: Stage) -> None:
    """The resource service takes a node away, and refuses its release (RFC 28, Release Request)."""
    before = stage.nready
    async with standing_in(stage, topics.RESOURCE) as resource:
        acquire = await resource.asked(topics.RESOURCE_ACQUIRE)
        resource.change(acquire, Grown(SCHED_MACHINE, SCHED_MACHINE.ranks, Idset()))
        await stage.ready(before)
        resource.change(acquire, Shrunk(Idset.of([1])))
        await resource.refuse(await resource.asked(topics.RESOURCE_RELEASE), "28.release.10")
