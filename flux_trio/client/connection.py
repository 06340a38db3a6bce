"""A connection to an instance: calls, streams of responses, events. Under Trio and asyncio.

This is RFC 6 from the client's side. The connection knows one service by name: the broker, for
events.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio.lowlevel

from flux_trio.client.credit import Granter
from flux_trio.client.link import ClientStatistics, Link
from flux_trio.client.responses import Answer, Queue
from flux_trio.messages import Event, Flag, FluxError, LocalProtocolError, Payload, Request, topics

_NORESPONSE: Final = int(Flag.NORESPONSE)
_STREAMING: Final = int(Flag.STREAMING)


class Connection:
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

    def statistics(self) -> ClientStatistics:
        return self._link.statistics()

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
