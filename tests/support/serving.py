"""One service on a broker of its own, and clients beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from flux_trio.broker import Handle, LocalHandle, LogBook, Router
from flux_trio.messages import ROLE_OWNER, Flag, FluxError, Request, Response
from flux_trio.trace import Trace
from tests.support.asking import OWNER_USERID


class World:
    """A broker without modules. Its clock starts at 1000 s and follows Trio's."""

    def __init__(self) -> None:
        self.router = Router(Trace(self.now))
        self.log = LogBook()
        self._began = trio.current_time()

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return 1000.0 + trio.current_time() - self._began

    def handle(self, name: str) -> LocalHandle:
        """A new peer `name`, with the owner's role."""
        return LocalHandle(name, self.router, self.now, self.log, OWNER_USERID, ROLE_OWNER)

    def client(self, name: str = "client") -> Client:
        """A new peer `name` that asks."""
        return Client(self.handle(name))

    @asynccontextmanager
    async def serving(self, name: str, main: Callable[..., Awaitable[None]]) -> AsyncIterator[None]:
        """`main(handle, task_status=...)` has started as the module `name`, and ends here."""
        handle = self.handle(name)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(main, handle)
                yield
                nursery.cancel_scope.cancel()
        finally:
            handle.close()


class Client:
    """Asks, and keeps answers apart by matchtag."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self._tag = 0
        self._waiting: list[Response] = []

    def send(self, topic: str, payload: Any = None, *, streaming: bool = False) -> int:
        """Send a request; its matchtag."""
        self._tag += 1
        self.handle.send(Request(topic, payload, self._tag, int(Flag.STREAMING) * streaming))
        return self._tag

    async def answer(self, tag: int) -> Response:
        """The next response to the request `tag`."""
        while True:
            for index, response in enumerate(self._waiting):
                if response.matchtag == tag:
                    return self._waiting.pop(index)
            self._waiting += await self.handle.receive()

    def has_answer(self, tag: int) -> bool:
        """Whether a response to the request `tag` came before one that was awaited."""
        return any(response.matchtag == tag for response in self._waiting)

    async def ask(self, topic: str, payload: Any = None) -> Any:
        """One request, one answer's payload. Raises FluxError for an error response."""
        response = await self.answer(self.send(topic, payload))
        if response.errnum:
            raise FluxError(response.errnum, response.error_text)
        return response.payload
