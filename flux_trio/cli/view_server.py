"""Serves one page and one stream of lines to a browser on this machine, over HTTP.

Any user of the machine, and any page that the browser shows, can send requests to a port of the
loopback address. So the page itself has no data. Its address ends with a key that is used up when
the page asks for a session; the session opens the stream. A request must name this server as its
host, so that no other name can lead to it, and as its origin, so that no other page can send it.
"""

from __future__ import annotations

import secrets
from collections import deque
from typing import Final

import anyio
import anyio.abc
import h11
import msgspec

HOST: Final = "127.0.0.1"
CONNECTIONS_MAX: Final = 32  # open at once; more are closed
READERS_MAX: Final = 4  # streams that are open at once
REQUEST_S_MAX: Final = 10.0  # to send a request, or to read an answer that is no stream
HEADER_BYTES_MAX: Final = 16 * 2**10
READER_BYTES_MAX: Final = 4 * 2**20
"""Bytes that wait for one browser. Further lines are left out; their number takes their place."""
BACKLOG_BYTES_MAX: Final = 4 * 2**20  # of the last lines, which a new reader gets first

_PEER_ERRORS: Final = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    h11.ProtocolError,
)


class Reader:
    """The lines that wait for one browser."""

    def __init__(self, backlog: list[bytes]) -> None:
        self._lines = backlog
        self._size = sum(map(len, backlog))
        self._nlost = 0
        self._wake = anyio.Event()
        self._wake.set()

    def add(self, line: bytes) -> None:
        """Take a line, however many wait."""
        self._lines.append(line)
        self._size += len(line)
        self._wake.set()

    def put(self, line: bytes) -> None:
        """Take a line if there is room; count it if not."""
        if self._size + len(line) > READER_BYTES_MAX:
            self._nlost += 1
        else:
            self._lines.append(line)
            self._size += len(line)
        self._wake.set()

    async def take(self) -> bytes:
        """Wait; return all waiting lines, with the number of those that were left out."""
        await self._wake.wait()
        self._wake = anyio.Event()
        lines, self._lines, self._size = self._lines, [], 0
        if self._nlost:
            lines.append(lost_line(self._nlost))
            self._nlost = 0
        return b"".join(lines)


def lost_line(count: int) -> bytes:
    """Return the line that says that so many records are missing in its place."""
    return msgspec.json.encode({"lost": count}) + b"\n"


class Feed:
    """Lines of JSON for all readers.

    A new reader first gets the lines that are kept, then the last BACKLOG_BYTES_MAX bytes of the
    others.
    """

    def __init__(self) -> None:
        self._kept: list[bytes] = []
        self._backlog: deque[bytes] = deque()
        self._size = 0
        self._readers: set[Reader] = set()

    def put(self, line: bytes) -> None:
        """Pass a line on; this never waits."""
        self._backlog.append(line)
        self._size += len(line)
        while self._size > BACKLOG_BYTES_MAX:
            self._size -= len(self._backlog.popleft())
        for reader in self._readers:
            reader.put(line)

    def keep(self, line: bytes) -> None:
        """Pass a line on that no reader misses; the caller limits the number of these lines."""
        self._kept.append(line)
        for reader in self._readers:
            reader.add(line)

    def open(self) -> Reader | None:
        """Return a new reader; None if there are too many."""
        if len(self._readers) >= READERS_MAX:
            return None
        reader = Reader([*self._kept, *self._backlog])
        self._readers.add(reader)
        return reader

    def close(self, reader: Reader) -> None:
        self._readers.discard(reader)


class Refused(Exception):
    """The request is refused with a status of HTTP and a text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ViewServer:
    """The server of a page and a feed; `policy` is the page's Content-Security-Policy."""

    def __init__(self, page: str, policy: str, feed: Feed) -> None:
        self._page = page.encode()
        self._policy = policy
        self._feed = feed
        self._key = secrets.token_urlsafe()
        self._session = ""
        self._port = 0
        self._nopen = 0

    @property
    def url(self) -> str:
        """The address to open once; the key is behind the #, which browsers do not send."""
        return f"http://{HOST}:{self._port}/#{self._key}"

    async def serve(
        self,
        port: int,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Listen until cancelled; port 0 takes any free port. Raises OSError."""
        listener = await anyio.create_tcp_listener(local_host=HOST, local_port=port)
        async with listener:
            self._port = listener.extra(anyio.abc.SocketAttribute.local_port)
            task_status.started()
            await listener.serve(self.take)

    async def take(self, stream: anyio.abc.ByteStream) -> None:
        """Handle one connection with one request; errors of the peer end only this connection."""
        async with stream:
            if self._nopen >= CONNECTIONS_MAX:
                return
            self._nopen += 1
            try:
                await _Exchange(stream, self).run()
            except _PEER_ERRORS:
                pass
            finally:
                self._nopen -= 1

    def answer(self, request: h11.Request) -> bytes | Reader:
        """Return the page, the session, or the stream. Raises Refused."""
        headers = dict(request.headers)
        hosts = {f"{name}:{self._port}" for name in (HOST, "localhost")}
        host = headers.get(b"host", b"").decode("latin-1")
        if host not in hosts:
            raise Refused(421, f"expected the host {HOST}:{self._port}")
        match request.method, request.target:
            case b"GET", b"/":
                return self._page
            case b"POST", b"/session":
                _check_origin(headers, host)
                return self._open_session(_bearer(headers))
            case b"POST", b"/records":
                _check_origin(headers, host)
                return self._open_stream(_bearer(headers))
        raise Refused(404, "there is only the page /")

    def _open_session(self, key: str) -> bytes:
        if self._session:
            raise Refused(403, "the key in this address has been used; start the command again")
        if not secrets.compare_digest(key.encode(), self._key.encode()):
            raise Refused(403, "expected the key in the address that the command has printed")
        self._session = secrets.token_urlsafe()
        return msgspec.json.encode({"session": self._session})

    def _open_stream(self, session: str) -> Reader:
        if not self._session or not secrets.compare_digest(
            session.encode(), self._session.encode()
        ):
            raise Refused(403, "expected a session of this server")
        reader = self._feed.open()
        if reader is None:
            raise Refused(429, f"{READERS_MAX} pages show this already")
        return reader

    def close(self, reader: Reader) -> None:
        self._feed.close(reader)

    def headers(self, kind: str) -> list[tuple[str, str]]:
        return [
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Security-Policy", f"{self._policy}; frame-ancestors 'none'"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
        ]


class _Exchange:
    """One request and its answer."""

    def __init__(self, stream: anyio.abc.ByteStream, server: ViewServer) -> None:
        self._stream = stream
        self._server = server
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES_MAX)

    async def run(self) -> None:
        reader = None
        with anyio.move_on_after(REQUEST_S_MAX):
            reader = await self._answer()
        if reader is not None:
            await self._send_stream(reader)

    async def _answer(self) -> Reader | None:
        """Answer the request; if it opens a stream, return its reader, and send nothing yet."""
        try:
            answer = self._server.answer(await self._request())
        except Refused as refused:
            await self._send_whole(refused.status, "text/plain", str(refused).encode())
            return None
        if isinstance(answer, Reader):
            return answer
        kind = "text/html" if answer.startswith(b"<") else "application/json"
        await self._send_whole(200, kind, answer)
        return None

    async def _request(self) -> h11.Request:
        """Return the request; a body is not read."""
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                return event
            if event is not h11.NEED_DATA:
                raise anyio.EndOfStream
            self._http.receive_data(await self._stream.receive())

    async def _send_whole(self, status: int, kind: str, body: bytes) -> None:
        headers = [*self._server.headers(kind), ("Content-Length", str(len(body)))]
        await self._send(h11.Response(status_code=status, headers=headers))
        await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def _send_stream(self, reader: Reader) -> None:
        """Send lines until the browser goes."""
        headers = self._server.headers("application/x-ndjson")
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._wait_for_end, tasks.cancel_scope)
                await self._send(h11.Response(status_code=200, headers=headers))
                while True:
                    await self._send(h11.Data(data=await reader.take()))
        except* _PEER_ERRORS:
            pass
        finally:
            self._server.close(reader)

    async def _wait_for_end(self, scope: anyio.CancelScope) -> None:
        """Cancel the scope when the browser has closed the connection."""
        try:
            while True:
                await self._stream.receive()
        except _PEER_ERRORS:
            scope.cancel()

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            await self._stream.send(data)


def _check_origin(headers: dict[bytes, bytes], host: str) -> None:
    """Raise Refused unless the page of this server has sent the request."""
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin != f"http://{host}":
        raise Refused(403, f"expected the origin http://{host}, got {origin or 'none'}")


def _bearer(headers: dict[bytes, bytes]) -> str:
    value = headers.get(b"authorization", b"").decode("latin-1")
    return value.removeprefix("Bearer ")
