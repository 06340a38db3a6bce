"""A client of an instance: calls, streams of responses, events. Under Trio and asyncio.

This is RFC 6 from the client's side. The client knows two services by name: the broker, for events,
and ingest, because most clients submit many jobs at once.
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
from flux_trio.client.jobs import Job, list_jobs
from flux_trio.client.link import ClientStatistics, Link
from flux_trio.client.responses import Answer, Queue
from flux_trio.client.websocket import open_websocket
from flux_trio.formats import Jobspec, parse_fluid
from flux_trio.messages import (
    USERID_UNKNOWN,
    Event,
    Flag,
    FluxError,
    LocalProtocolError,
    Payload,
    Request,
    topics,
)
from flux_trio.process.groups import error_of_block

CLOSE_S_MAX: Final = 2.0  # to send queued messages and the close frame; then the socket is cut
PIPELINE_MAX: Final = 1024  # submissions without an answer yet: enough to keep the line full

_NORESPONSE: Final = int(Flag.NORESPONSE)
_STREAMING: Final = int(Flag.STREAMING)


@asynccontextmanager
async def open_client(uri: str, token: str = "") -> AsyncIterator[Client]:
    """Yield a client of the instance at `uri`; it is connected during the block.

    At unix://PATH the kernel tells the server the user of this process; at ws://HOST:PORT `token`
    identifies the user. Raises NoInstance and AccessDenied; errors of the block pass unchanged.
    """
    socket = await open_websocket(uri, token)
    link = Link(socket, uri)
    try:
        with error_of_block():
            async with anyio.create_task_group() as tasks:  # owns the link's reader and writer
                tasks.start_soon(link.read)
                tasks.start_soon(link.write)
                try:
                    yield Client(link)
                finally:
                    with anyio.move_on_after(CLOSE_S_MAX, shield=True):
                        await link.close()
                    tasks.cancel_scope.cancel()
    finally:
        await socket.aclose()


class Client:
    """One connection to an instance; any number of tasks may use it."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def call(
        self, topic: str, payload: Payload = None, *, noresponse: bool = False
    ) -> dict[str, Any]:
        """Send a request; return the payload of its response, {} if it has none.

        The payload raises MissingKey for a key that the instance, which may be older, does not
        send. With `noresponse` the request wants no response, and {} is returned at once. Raises
        FluxError with errnum and text of a failure, ConnectionLost, and LocalProtocolError for a
        payload that cannot travel.
        """
        if noresponse:
            self._link.send(Request(topic, payload, flags=_NORESPONSE))
            await self._link.wait_for_room()
            await anyio.lowlevel.checkpoint()
            return {}
        answer = self._link.open_call(topic, payload)
        return await self._wait_for_answer(answer)

    @asynccontextmanager
    async def stream(
        self,
        topic: str,
        payload: Payload = None,
        *,
        cancel_topic: str | None = None,
        credit: bool = False,
    ) -> AsyncIterator[Queue[dict[str, Any]]]:
        """Iterate over the payloads of a stream of responses; they are as those of `call`.

        ENODATA ends the iteration; another errnum raises FluxError. If the block ends before the
        stream, the client sends `cancel_topic`, the service's cancel method, and drops the rest.

        With `credit` the service sends no more responses than the reader has granted, so a reader
        may pause for any time. It is for streams that can wait (docs/reference/wire.md, Credit).
        Without `credit`, when STREAM_QUEUE_MAX responses wait, the client stops reading until there
        is room; if a call waits for its response meanwhile, the stream ends with EOVERFLOW instead.
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

        The queue has every event published after the block begins; see `stream` for its limit.
        """
        link = self._link
        with link.open_queue() as events:
            link.subscriptions.append((pattern, events))
            is_subscribed = True  # possibly, even if this call is cancelled
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

    async def submit(
        self, jobspec: Jobspec | dict[str, Any], urgency: int = 16, flags: int = 0
    ) -> Job:
        """Submit a jobspec, also as the object of RFC 25; return the job when it is durable."""
        spec = jobspec.to_json() if isinstance(jobspec, Jobspec) else jobspec
        payload = {"jobspec": spec, "urgency": urgency, "flags": flags}
        answer = self._link.open_call(topics.INGEST_SUBMIT, payload)
        return self.job(_job_id(await self._wait_for_answer(answer)))

    def job(self, jobid: int | str) -> Job:
        """Return a job by its id, in any form of RFC 19. FormatError for a text that is no id."""
        return Job(self, parse_fluid(jobid) if isinstance(jobid, str) else jobid)

    async def jobs(
        self,
        *,
        states: int | None = None,
        results: int = 0,
        userid: int = USERID_UNKNOWN,
        queues: Iterable[str] = (),
        name: str = "",
        since: float = 0.0,
        limit: int = 0,
    ) -> list[dict[str, Any]]:
        """Return what job-list knows of the jobs in one of `states`, a mask of `JobState`.

        By default these are the active ones. With `results`, a mask of `JobResult`, only those are
        returned that ended so. The jobs are those of all users and queues, unless `userid` or
        `queues` select some. Inactive jobs are left out if they ended before `since`, seconds since
        the Unix epoch. At most `limit` are returned; 0 is all. Raises FluxError.
        """
        from flux_trio.protocols import ACTIVE

        wanted = {
            "max_entries": limit,
            "states": int(ACTIVE if states is None else states),
            "results": int(results),
            "userid": userid,
            "name": name,
            "queues": list(queues),
            "since": since,
        }
        return await list_jobs(self, wanted, limit)

    async def submit_many(
        self, jobspecs: Iterable[dict[str, Any]], urgency: int = 16, flags: int = 0
    ) -> list[int | FluxError]:
        """Submit many jobs, PIPELINE_MAX at a time; return an id or an error for each."""
        results: list[int | FluxError] = []
        waiting: deque[Answer] = deque()
        try:
            for jobspec in jobspecs:
                if len(waiting) >= PIPELINE_MAX:
                    results.append(await self._wait_for_submission(waiting.popleft()))
                payload = {"jobspec": jobspec, "urgency": urgency, "flags": flags}
                waiting.append(self._link.open_call(topics.INGEST_SUBMIT, payload))
            while waiting:
                results.append(await self._wait_for_submission(waiting.popleft()))
        finally:
            for answer in waiting:
                self._link.close_call(answer)
        return results

    def statistics(self) -> ClientStatistics:
        return self._link.statistics()

    async def _wait_for_submission(self, answer: Answer) -> int | FluxError:
        try:
            return _job_id(await self._wait_for_answer(answer))
        except FluxError as error:
            return error

    async def _wait_for_answer(self, answer: Answer) -> dict[str, Any]:
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
    """Tell the service that it may send `more` responses."""
    if not link.is_lost:
        link.send(Request(topic, {"matchtag": matchtag, "credit": more}, flags=_NORESPONSE))


def _job_id(payload: dict[str, Any]) -> int:
    jobid: int = payload["id"]
    return jobid
