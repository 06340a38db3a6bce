"""Serves one page and one stream of lines to a browser on this machine, over HTTP.

Any user of the machine, and any page that the browser shows, can send requests to it. So the page
itself has no data. Its address ends with a key that is used up when the page asks for a session;
the session opens the stream. A request for them must name this server as its origin, so that no
other page can send it.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from typing import Final

import anyio
import anyio.abc
import msgspec

from flux_trio.cli.connection.loopback import (
    HOST,
    HttpRequest,
    Lines,
    LoopbackServer,
    Refused,
    Whole,
)

READERS_MAX: Final = 4  # streams that are open at once
READER_BYTES_MAX: Final = 4 * 2**20
"""Bytes that wait for one browser. Further lines are left out; their number takes their place."""
BACKLOG_BYTES_MAX: Final = 4 * 2**20  # of the last lines, which a new reader gets first


class Reader:
    """The lines that wait for one browser; `close` is called when it has gone."""

    def __init__(self, backlog: list[bytes], forget: Callable[[Reader], None]) -> None:
        self._forget = forget
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

    async def next_lines(self) -> bytes:
        """Wait; return all waiting lines, with the number of those that were left out."""
        await self._wake.wait()
        self._wake = anyio.Event()
        lines, self._lines, self._size = self._lines, [], 0
        if self._nlost:
            lines.append(lost_line(self._nlost))
            self._nlost = 0
        return b"".join(lines)

    def close(self) -> None:
        self._forget(self)


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
        reader = Reader([*self._kept, *self._backlog], self._readers.discard)
        self._readers.add(reader)
        return reader


class ViewServer:
    """The server of a page and a feed; `policy` is the page's Content-Security-Policy."""

    def __init__(self, page: str, policy: str, feed: Feed) -> None:
        self._page = page.encode()
        self._feed = feed
        self._key = secrets.token_urlsafe()
        self._session = ""
        self._server = LoopbackServer(
            self.answer,
            [
                ("Content-Security-Policy", f"{policy}; frame-ancestors 'none'"),
                ("X-Content-Type-Options", "nosniff"),
                ("Referrer-Policy", "no-referrer"),
                ("Cache-Control", "no-store"),
            ],
        )
        self.serve, self.serve_one = self._server.serve, self._server.serve_one

    @property
    def url(self) -> str:
        """The address to open once; the key is behind the #, which browsers do not send."""
        return f"http://{HOST}:{self._server.port}/#{self._key}"

    async def answer(self, asked: HttpRequest) -> Whole | Lines:
        """Return the page, the session, or the stream. Raises Refused."""
        match asked.method, asked.path:
            case "GET", "/":
                return Whole("text/html; charset=utf-8", self._page)
            case "POST", "/session":
                _check_origin(asked)
                return self._open_session(_bearer(asked))
            case "POST", "/records":
                _check_origin(asked)
                return self._open_stream(_bearer(asked))
        raise Refused(404, "there is only the page /")

    def _open_session(self, key: str) -> Whole:
        if self._session:
            raise Refused(403, "the key in this address has been used; start the command again")
        if not secrets.compare_digest(key.encode(), self._key.encode()):
            raise Refused(403, "expected the key in the address that the command has printed")
        self._session = secrets.token_urlsafe()
        session = msgspec.json.encode({"session": self._session})
        return Whole("application/json; charset=utf-8", session)

    def _open_stream(self, session: str) -> Reader:
        if not self._session or not secrets.compare_digest(
            session.encode(), self._session.encode()
        ):
            raise Refused(403, "expected a session of this server")
        reader = self._feed.open()
        if reader is None:
            raise Refused(429, f"{READERS_MAX} pages show this already")
        return reader


def _check_origin(asked: HttpRequest) -> None:
    """Raise Refused unless the page of this server has sent the request."""
    origin = asked.header("origin")
    if origin != f"http://{asked.host}":
        raise Refused(403, f"expected the origin http://{asked.host}, got {origin or 'none'}")


def _bearer(asked: HttpRequest) -> str:
    return asked.header("authorization").removeprefix("Bearer ")
