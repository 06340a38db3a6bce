"""Schedulers and execution services that are not ours, as small as a test needs them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from flux_trio.broker import Handle
from flux_trio.instance import Instance
from flux_trio.messages import Errno, FluxError, Request, Response, topics

Answers = Callable[[Request], list[Response]]


async def refusing_scheduler(
    handle: Handle, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """A scheduler that is ready, and answers every sched.alloc with a conventional error."""
    handle.register(topics.SCHED)
    async with handle.stream(topics.SCHED_HELLO) as jobs:
        async for _ in jobs:
            pass
    await handle.call(topics.SCHED_READY, {"mode": "unlimited"})
    task_status.started()
    while True:
        for request in await handle.receive():
            if isinstance(request, Request) and request.topic == topics.SCHED_ALLOC:
                text = "no allocation from this one"
                handle.send(Response(request.topic, text, Errno.EINVAL, routes=request.routes))


@asynccontextmanager
async def execution_service(
    instance: Instance, service: str, answers: Answers | None
) -> AsyncIterator[str]:
    """An execution service as a client that registers a name; what its hello was answered with.

    `answers` says what a start is answered with; without it nobody serves the name.
    """
    async with instance.connect(service) as handle, trio.open_nursery() as nursery:
        if answers is not None:
            handle.register(service)
            nursery.start_soon(_serve, handle, f"{service}.start", answers)
        try:
            await handle.call(topics.EXEC_HELLO, {"service": service})
            yield "ok"
        except FluxError as error:
            yield error.text
        nursery.cancel_scope.cancel()


async def _serve(handle: Handle, topic: str, answers: Answers) -> None:
    while True:
        for request in await handle.receive():
            if isinstance(request, Request) and request.topic == topic:
                for answer in answers(request):
                    handle.send(answer)


def start_answers(*kinds: tuple[str, dict[str, Any]]) -> Answers:
    """Answer a start with these types and data, all at once."""

    def answers(request: Request) -> list[Response]:
        assert isinstance(request.payload, dict)
        jobid = request.payload["id"]
        return [
            Response(
                request.topic, {"id": jobid, "type": kind, "data": data}, routes=request.routes
            )
            for kind, data in kinds
        ]

    return answers


def error_answer(request: Request) -> list[Response]:
    """Answer a start with a conventional error."""
    return [Response(request.topic, "not here", Errno.EINVAL, routes=request.routes)]
