"""A small instance at a real port and Unix socket, served by Trio in a thread of its own.

It has one service, `test`, with a method for each way an RPC can go; broker.subscribe; a
job-ingest.submit that gives out ids; and the broker.info of an older version.
"""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from flux_trio.cores.streams import Credit, Stream, Streams
from flux_trio.messages import (
    Errno,
    Event,
    Message,
    Request,
    end_of_stream,
    respond,
    respond_error,
    respond_stream,
    topics,
)
from flux_trio.transports import (
    Connection,
    Credentials,
    PacedConnection,
    TransportError,
    serve_unix,
    serve_websocket,
)
from flux_trio.transports.websocket import WebSocketWire

TOKEN = "sesame"
OLD_INFO: dict[str, Any] = {"level": 0, "version": "0.0.1"}  # without `requester`


class SmallInstance:
    """Where it listens, and the requests that came."""

    def __init__(self) -> None:
        self.uri = ""
        self.local_uri = ""
        self.known_users = True
        self.info = OLD_INFO  # the answer to broker.info
        self.requests: list[Request] = []
        self.connections = 0
        self._served = threading.Condition()
        self._served_count = 0  # connections that have ended here
        self._streams: dict[int, Request] = {}
        self._paced = Streams[_Paced]()
        self._jobs = 0

    def topics(self) -> list[str]:
        return [request.topic for request in self.requests]

    def authenticate(self, token: str) -> Credentials | None:
        return Credentials(100, 1, "ali") if token == TOKEN else None

    def who_is(self, userid: int) -> Credentials | None:
        return Credentials(userid, 1, "ali") if self.known_users else None

    async def serve(self, connection: Connection, credentials: Credentials) -> None:
        self.connections += 1
        try:
            while True:
                for message in await connection.receive():
                    assert isinstance(message, Request)
                    self.requests.append(message)
                    await self._take(connection, message)
        except TransportError:
            self.connections -= 1
            with self._served:
                self._served_count += 1
                self._served.notify_all()

    @contextmanager
    def one_served(self) -> Iterator[None]:
        """A block with one connection; it ends when the instance has read all of that."""
        count = self._served_count + 1
        yield
        with self._served:
            assert self._served.wait_for(lambda: self._served_count >= count, 300)

    async def _take(self, connection: Connection, request: Request) -> None:
        assert isinstance(connection, PacedConnection)
        wire = connection._wire
        assert isinstance(wire, WebSocketWire)
        match request.topic, request.payload:
            case "test.hang-up", _:
                await connection.aclose("that is enough")
            case "test.break", _:
                await wire.socket.send_message(b"\xff")
            case "test.say-text", _:
                await wire.socket.send_message("text")
            case "test.ping", _:
                await wire.socket.ping()
                connection.send_nowait(respond(request) or Event("never"))
            case topics.BROKER_INFO, _:
                connection.send_nowait(respond(request, self.info) or Event("never"))
            case _:
                paced = request.topic in ("test.paced", "test.paced-credit")
                for message in self._take_paced(request) if paced else self._answers(request):
                    if message is not None:
                        connection.send_nowait(message)

    def _answers(self, request: Request) -> Iterator[Message | None]:
        payload = request.payload
        match request.topic, payload:
            case "test.echo", _:
                yield respond(request, payload)
            case "test.count", {"n": int(n)}:
                for index in range(n):
                    yield respond_stream(request, {"index": index})
                yield end_of_stream(request)
            case "test.count-and-fail", _:
                yield respond_stream(request, {"index": 0})
                yield respond_error(request, Errno.EPERM, "no more for you")
            case "test.watch", _:
                self._streams[request.matchtag] = request
                yield respond_stream(request, {"index": 0})
            case "test.watch-cancel", {"matchtag": int(matchtag)}:
                yield respond_error(self._streams.pop(matchtag), Errno.ECANCELED)
            case "test.silence", _:
                return
            case "test.publish", {"topics": names}:
                for sequence, name in enumerate(names):
                    yield Event(name, {"name": name}, sequence)
                yield respond(request)
            case topics.BROKER_SUBSCRIBE | topics.BROKER_UNSUBSCRIBE, {"topic": topic}:
                yield _subscribed(request, topic)
            case topics.INGEST_SUBMIT, {"jobspec": dict(jobspec), "urgency": int(), "flags": int()}:
                yield self._submit(request, jobspec)
            case _:
                yield respond_error(request, Errno.ENOSYS, f"no method {request.topic}")

    def _take_paced(self, request: Request) -> Iterator[Message | None]:
        """A stream that keeps to its reader's credit, and the grants of that."""
        if request.topic == "test.paced":
            payload = request.payload
            assert isinstance(payload, dict)
            paced = _Paced(request, Credit(payload["credit"]), payload["n"])
            self._paced.add(paced)
            yield from paced.go_on()
        elif (granted := self._paced.granted(request)) is not None:
            yield from granted.go_on()

    def _submit(self, request: Request, jobspec: dict[str, Any]) -> Message | None:
        if "bad" in jobspec:
            return respond_error(request, Errno.EINVAL, jobspec["bad"])
        self._jobs += 1
        return respond(request, {"id": self._jobs})


class _Paced(Stream):
    """How far such a stream of `n` responses is."""

    n: int
    sent: int = 0

    def go_on(self) -> Iterator[Message | None]:
        for _ in range(self.credit.allows(self.n - self.sent)):
            yield respond_stream(self.request, {"index": self.sent})
            self.credit.spend()
            self.sent += 1
        if self.sent == self.n:
            yield end_of_stream(self.request)


def _subscribed(request: Request, topic: str) -> Message | None:
    if topic == "one-too-many":
        return respond_error(request, Errno.ENOSPC, "no more for you")
    return respond(request)


@contextmanager
def run_small_instance() -> Iterator[SmallInstance]:
    """An instance that runs while the block does; no connection outlives its client."""
    instance = SmallInstance()
    started = threading.Event()
    stop: list[tuple[trio.lowlevel.TrioToken, trio.CancelScope]] = []

    async def main() -> None:
        with tempfile.TemporaryDirectory() as directory:
            await serve(Path(directory))

    async def serve(directory: Path) -> None:
        async with trio.open_nursery() as nursery:
            stop.append((trio.lowlevel.current_trio_token(), nursery.cancel_scope))
            instance.uri = await nursery.start(
                serve_websocket, "127.0.0.1", 0, instance.authenticate, instance.serve
            )
            instance.local_uri = await nursery.start(
                serve_unix, directory / "local", 0o600, instance.who_is, instance.serve
            )
            started.set()

    thread = threading.Thread(target=trio.run, args=(main,), daemon=True)
    thread.start()
    assert started.wait(300)  # only what hangs takes so long
    try:
        yield instance
    finally:
        token, scope = stop[0]
        token.run_sync_soon(scope.cancel)
        thread.join(300)
        assert not thread.is_alive()
