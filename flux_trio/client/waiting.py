"""Where answers wait for who asked: one place for a call, a bounded queue for a stream."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import anyio

from flux_trio.client.credit import Granter
from flux_trio.client.errors import ConnectionLost
from flux_trio.messages import FluxError, Response

# Responses or events that wait in one stream. It holds a burst; when it is full the client reads
# no further, so that the instance's own bound decides about a peer that never takes anything.
STREAM_QUEUE_MAX: Final = 16_384

T = TypeVar("T")


class Answer:
    """One call: its response, or that there will be none."""

    __slots__ = ("_arrived", "_outcome", "matchtag")

    def __init__(self) -> None:
        self.matchtag = 0  # set when the call is open
        self._outcome: Response | ConnectionLost | None = None
        self._arrived: anyio.Event | None = None  # set while somebody waits

    def take(self, outcome: Response | ConnectionLost) -> None:
        """End the call with what came of it."""
        self._outcome = outcome
        if self._arrived is not None:
            self._arrived.set()

    async def wait(self) -> dict[str, Any]:
        """The payload of a success. Raises FluxError for a failure, or ConnectionLost."""
        if self._outcome is None:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        match self._outcome:
            case Response(errnum=0, payload=payload):
                return payload if isinstance(payload, dict) else {}
            case Response() as response:
                raise FluxError(response.errnum, response.error_text)
            case lost:
                raise ConnectionLost(str(lost))


class Queue(Generic[T]):
    """One stream: iterate over it until it ends, once."""

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
            self.granter.took()
        return item

    def put_nowait(self, item: T) -> bool:
        """Queue `item`; False when there is no room. Once ended it is dropped."""
        try:
            self._put.send_nowait(item)
        except anyio.WouldBlock:
            return False
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        return True

    async def put(self, item: T) -> None:
        """Queue `item` when there is room, or drop it once the reader has left."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._put.send(item)

    def end(self, error: FluxError | ConnectionLost | None = None) -> None:
        """Nothing more comes: the reader gets what waits, then the end, or `error`.

        Only the first end counts.
        """
        if not self._ended:
            self._ended = True
            self._error = error
            self._put.close()

    def close(self) -> None:
        """The reader leaves."""
        self._put.close()
        self._take.close()
