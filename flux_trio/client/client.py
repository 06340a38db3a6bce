"""A client of an instance: calls, streams of responses, events. Under Trio and asyncio.

RFC 6 from the client's side. The only service it knows by name are the broker, for events, and
ingest, because submitting many jobs at once is what clients do most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio
import anyio.lowlevel

from flux_trio.client.credit import Granter
from flux_trio.client.link import ClientStatistics, Link
from flux_trio.client.waiting import Answer, Queue
from flux_trio.client.websocket import open_websocket
from flux_trio.messages import Event, Flag, FluxError, LocalProtocolError, Payload, Request, topics

CLOSE_S_MAX: Final = 2.0  # to send what is queued and say goodbye; then the socket is cut
PIPELINE_MAX: Final = 1024  # submissions that wait for their answers: enough to keep the line full

_NORESPONSE: Final = int(Flag.NORESPONSE)
_STREAMING: Final = int(Flag.STREAMING)


@asynccontextmanager
async def open_client(uri: str, token: str = "") -> AsyncIterator[Client]:
    """A client of the instance at `uri`, connected until the block is left.

    At unix://PATH the user of this process is who the client is, at ws://HOST:PORT `token` says it.
    Raises NoInstance, AccessDenied, and what is raised in the block as it is.
    """
    socket = await open_websocket(uri, token)
    link = Link(socket)
    try:
        async with anyio.create_task_group() as tasks:  # owns the link's reader and writer
            tasks.start_soon(link.read)
            tasks.start_soon(link.write)
            try:
                yield Client(link)
            finally:
                with anyio.move_on_after(CLOSE_S_MAX, shield=True):
                    await link.close()
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # The two tasks raise nothing: what is in the group came out of the block.
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from group.exceptions[0].__cause__
    finally:
        await socket.aclose()


class Client:
    """One connection to an instance, for as many tasks as like to use it."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def call(
        self, topic: str, payload: Payload = None, *, noresponse: bool = False
    ) -> dict[str, Any]:
        """Send a request; return the payload of its response, {} when it has none.

        With `noresponse` no response is asked for and {} is returned at once. Raises FluxError
        with the errnum and text of a failure, ConnectionLost, and LocalProtocolError for a payload
        that cannot travel.
        """
        if noresponse:
            self._link.send(Request(topic, payload, flags=_NORESPONSE))
            await self._link.wait_for_room()
            await anyio.lowlevel.checkpoint()
            return {}
        answer = self._link.open_call(topic, payload)
        return await self._answered(answer)

    @asynccontextmanager
    async def stream(
        self,
        topic: str,
        payload: Payload = None,
        *,
        cancel_topic: str | None = None,
        credit: bool = False,
    ) -> AsyncIterator[Queue[dict[str, Any]]]:
        """Iterate over the payloads of a stream of responses.

        ENODATA ends the iteration, another errnum raises FluxError. A block that is left before
        the end sends `cancel_topic`, the service's cancel method, and drops what still comes.

        With `credit` the service sends no more than the reader is ready for, so a reader may pause
        as long as it likes; for streams that can wait (docs/reference/wire.md, Credit). Without it,
        when STREAM_QUEUE_MAX responses wait, the client reads on only when there is room; if
        meanwhile a call waits for its response, the stream ends with EOVERFLOW instead.
        """
        link = self._link
        with link.open_queue() as responses, link.credit.taken(credit) as window:
            matchtag = link.calls.open(responses)
            if credit:
                payload = {**_keys_of(payload), "credit": window}
                grant = partial(_grant, link, topics.credit_of(topic), matchtag)
                responses.granter = Granter(window, grant)
            try:
                link.send(Request(topic, payload, matchtag, _STREAMING))
                await link.wait_for_room()
                yield responses
            finally:
                unfinished = link.calls.close(matchtag) is not None
                if unfinished and cancel_topic is not None and not link.is_lost:
                    cancel = {"matchtag": matchtag}
                    link.send(Request(cancel_topic, cancel, flags=_NORESPONSE))

    @asynccontextmanager
    async def subscribe(self, pattern: str) -> AsyncIterator[Queue[Event]]:
        """Iterate over the events whose topic matches the glob `pattern`.

        What was published once the block is entered comes; the queue is that of `stream`.
        """
        link = self._link
        with link.open_queue() as events:
            link.subscriptions.append((pattern, events))
            is_subscribed = True  # for all this client knows, even if it is given up meanwhile
            try:
                try:
                    await self.call(topics.BROKER_SUBSCRIBE, {"topic": pattern})
                except FluxError:
                    is_subscribed = False
                    raise
                yield events
            finally:
                link.subscriptions.remove((pattern, events))
                if is_subscribed and not link.is_lost:
                    end = {"topic": pattern}
                    link.send(Request(topics.BROKER_UNSUBSCRIBE, end, flags=_NORESPONSE))

    async def submit(self, jobspec: dict[str, Any], urgency: int = 16, flags: int = 0) -> int:
        """Submit a jobspec (RFC 25 object); the job's id, once it is durable."""
        payload = {"jobspec": jobspec, "urgency": urgency, "flags": flags}
        answer = self._link.open_call(topics.INGEST_SUBMIT, payload)
        return _job_id(await self._answered(answer))

    async def submit_many(
        self, jobspecs: Iterable[dict[str, Any]], urgency: int = 16, flags: int = 0
    ) -> list[int | FluxError]:
        """Submit many, PIPELINE_MAX of them on their way at a time; an id or error for each."""
        results: list[int | FluxError] = []
        waiting: deque[Answer] = deque()
        try:
            for jobspec in jobspecs:
                if len(waiting) >= PIPELINE_MAX:
                    results.append(await self._submitted(waiting.popleft()))
                payload = {"jobspec": jobspec, "urgency": urgency, "flags": flags}
                waiting.append(self._link.open_call(topics.INGEST_SUBMIT, payload))
            while waiting:
                results.append(await self._submitted(waiting.popleft()))
        finally:
            for answer in waiting:
                self._link.close_call(answer)
        return results

    def statistics(self) -> ClientStatistics:
        """Counts since the connection was opened."""
        return self._link.statistics()

    async def _submitted(self, answer: Answer) -> int | FluxError:
        try:
            return _job_id(await self._answered(answer))
        except FluxError as error:
            return error

    async def _answered(self, answer: Answer) -> dict[str, Any]:
        try:
            await self._link.wait_for_room()
            return await answer.wait()
        finally:
            self._link.close_call(answer)


def _keys_of(payload: Payload) -> dict[str, Any]:
    if isinstance(payload, str):
        raise LocalProtocolError("payload of a stream with credit: expected a map, got text")
    return payload or {}


def _grant(link: Link, topic: str, matchtag: int, more: int) -> None:
    """Tell the service that the reader has taken `more` responses."""
    if not link.is_lost:
        link.send(Request(topic, {"matchtag": matchtag, "credit": more}, flags=_NORESPONSE))


def _job_id(payload: dict[str, Any]) -> int:
    jobid: int = payload["id"]
    return jobid
