"""Responses and how they are awaited: one place for a call, a bounded queue for a stream.

An instance of an older version does not know the keys that were added since. A program that needs
such a key gets an error that says so, and no bare KeyError.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, Generic, NoReturn, TypeVar

import anyio

from flux_trio._version import __version__
from flux_trio.client.credit import Granter
from flux_trio.client.errors import ConnectionLost, MissingKey
from flux_trio.messages import FluxError, Response


class Reply(dict[str, Any]):
    """The keys of a payload; `topic` and `uri` tell what was asked, and which instance."""

    __slots__ = ("topic", "uri")

    def __init__(self, payload: object, topic: str, uri: str) -> None:
        super().__init__(payload if isinstance(payload, dict) else {})
        self.topic = topic
        self.uri = uri

    def __missing__(self, key: str) -> NoReturn:
        """Raise MissingKey, for `reply[key]`."""
        got = ", ".join(sorted(map(str, self))) or "no keys"
        raise MissingKey(
            f"{self.topic}: expected the key {key}, got {got}; if the instance at {self.uri} is "
            f"older than this program, which has version {__version__}, restart it"
        )


# Responses or events that wait in one stream. It holds a burst. When it is full, the client stops
# reading, so the instance's own limit applies to a client that never reads.
STREAM_QUEUE_MAX: Final = 16_384

T = TypeVar("T")


class Answer:
    """The response of one call to the instance at `uri`, or the reason why none will come."""

    __slots__ = ("_arrived", "_outcome", "_uri", "matchtag")

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.matchtag = 0  # set when the call is open
        self._outcome: Response | ConnectionLost | None = None
        self._arrived: anyio.Event | None = None  # set while a task waits

    def end(self, outcome: Response | ConnectionLost) -> None:
        """End the call with a response or with the loss of the connection."""
        self._outcome = outcome
        if self._arrived is not None:
            self._arrived.set()

    async def wait(self) -> dict[str, Any]:
        """Wait; return the payload of a success; FluxError for a failure, or ConnectionLost."""
        if self._outcome is None:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        match self._outcome:
            case Response(errnum=0, payload=payload, topic=topic):
                return Reply(payload, topic, self._uri)
            case Response() as response:
                raise FluxError(response.errnum, response.error_text)
            case lost:
                raise ConnectionLost(str(lost))


class Queue(Generic[T]):
    """One stream: an iterator over its items that can be used once."""

    def __init__(self) -> None:
        self.granter: Granter | None = None  # set for a stream with credit
        self._put, self._take = anyio.create_memory_object_stream[T](STREAM_QUEUE_MAX)
        self._ended = False
        self._error: FluxError | ConnectionLost | None = None

    def __aiter__(self) -> Queue[T]:
        return self

    async def __anext__(self) -> T:
        try:
            item = await self._take.receive()
        except anyio.EndOfStream:
            if self._error is not None:
                raise self._error from None
            raise StopAsyncIteration from None
        if self.granter is not None and not self._ended:
            self.granter.count_taken()
        return item

    def put_nowait(self, item: T) -> bool:
        """Queue `item`; return False if there is no room. After the end, drop it."""
        try:
            self._put.send_nowait(item)
        except anyio.WouldBlock:
            return False
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        return True

    async def put(self, item: T) -> None:
        """Queue `item` when there is room; drop it if the reader has left."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._put.send(item)

    def end(self, error: FluxError | ConnectionLost | None = None) -> None:
        """End the stream: the reader gets the waiting items, then the end or `error`.

        Later calls have no effect.
        """
        if not self._ended:
            self._ended = True
            self._error = error
            self._put.close()

    def close(self) -> None:
        """End the stream on behalf of its reader."""
        self._put.close()
        self._take.close()
