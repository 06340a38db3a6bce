"""The server of `flux-trio view --live`: who may see what, and how much waits for a browser."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, NamedTuple

import anyio
import msgspec
import pytest
import trio
import trio.testing
from anyio.streams.stapled import StapledObjectStream

from flux_trio.cli.connection.loopback import HEADER_BYTES_MAX, REQUEST_S_MAX, STRANGERS_MAX
from flux_trio.cli.judge.live_view import LiveRows
from flux_trio.cli.judge.monitor_process import REPORTED_MAX
from flux_trio.cli.judge.view_server import (
    BACKLOG_BYTES_MAX,
    READER_BYTES_MAX,
    READERS_MAX,
    Feed,
    Reader,
    ViewServer,
)
from flux_trio.trace import Record, record_to_json
from flux_trio.views.viewer import Rows
from tests.support.judged import edit_payload, find_all
from tests.support.scenarios import trace_of

PAGE = "<!DOCTYPE html><p>page</p>"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


class Served:
    """A server at a port of this machine, and requests to it."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.server = ViewServer(PAGE, "default-src 'none'", self.feed)

    @property
    def host(self) -> str:
        return self.server.url.split("/")[2]

    @property
    def key(self) -> str:
        return self.server.url.partition("#")[2]

    async def connect(self) -> trio.SocketStream:
        address, port = self.host.split(":")
        return await trio.open_tcp_stream(address, int(port))

    def request(self, method: str, path: str, secret: str = "", **headers: str | None) -> bytes:
        """The bytes of a request as the page sends it; a header that is None is left out."""
        own = {"Host": self.host, "Origin": f"http://{self.host}", "Content-Length": "0"}
        shown = {**own, "Authorization": f"Bearer {secret}", **headers}
        lines = [f"{name}: {value}" for name, value in shown.items() if value is not None]
        return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()

    async def ask(self, method: str, path: str, secret: str = "", **headers: str | None) -> Answer:
        async with await self.connect() as stream:
            await stream.send_all(self.request(method, path, secret, **headers))
            data = b"".join([chunk async for chunk in stream])
        return answer_of(data)

    async def session(self) -> str:
        answer = await self.ask("POST", "/session", self.key)
        session: str = json.loads(answer.body)["session"]
        return session

    @asynccontextmanager
    async def reading(self, session: str) -> AsyncIterator[Lines]:
        async with await self.connect() as stream:
            await stream.send_all(self.request("POST", "/records", session))
            yield Lines(stream)


class Lines:
    """The lines of an open stream."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.data = b""

    async def until(self, text: str) -> str:
        """Read until `text` has come; all that has come so far."""
        while text.encode() not in self.data:
            chunk = await self._stream.receive_some()
            assert chunk, f"ended before {text}: {self.data!r}"
            self.data += chunk
        return self.data.decode()


def answer_of(data: bytes) -> Answer:
    head, _, body = data.decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    pairs = [line.split(": ", 1) for line in lines]
    return Answer(int(first.split()[1]), {name.lower(): value for name, value in pairs}, body)


@pytest.fixture
async def served(nursery: trio.Nursery) -> Served:
    found = Served()
    await nursery.start(_serve, found.server)
    return found


async def _serve(server: ViewServer, task_status: Any) -> None:
    await server.serve(0, task_status=task_status)


async def test_page_has_no_secret_and_allows_nothing_else(served: Served) -> None:
    answer = await served.ask("GET", "/", Origin=None, Authorization=None)
    assert (answer.status, answer.body) == (200, PAGE)
    assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert answer.headers["cache-control"] == "no-store"
    assert served.key not in str(answer)
    assert len(served.key) > 40


async def test_key_opens_one_session(served: Served) -> None:
    session = await served.session()
    again = await served.ask("POST", "/session", served.key)
    assert (again.status, "has been used" in again.body) == (403, True)
    assert session != served.key
    async with served.reading(session) as lines:
        served.feed.put(b'{"a":1}\n')
        assert await lines.until('{"a":1}')


@pytest.mark.parametrize("key", ["", "wrong", "ƒ"])
async def test_wrong_key_opens_nothing_and_uses_nothing_up(served: Served, key: str) -> None:
    assert (await served.ask("POST", "/session", key)).status == 403
    assert (await served.ask("POST", "/records", key)).status == 403
    assert (await served.ask("POST", "/records", served.key)).status == 403
    assert await served.session()
    assert (await served.ask("POST", "/records", key)).status == 403


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "http://127.0.0.1:1"])
async def test_other_pages_open_nothing(served: Served, origin: str | None) -> None:
    answer = await served.ask("POST", "/session", served.key, Origin=origin)
    assert (answer.status, "expected the origin" in answer.body) == (403, True)
    session = await served.session()
    answer = await served.ask("POST", "/records", session, Origin=origin)
    assert answer.status == 403


async def test_other_names_of_this_machine_lead_to_nothing(served: Served) -> None:
    evil = {"Host": "evil.example", "Origin": "http://evil.example"}
    for method, path in (("GET", "/"), ("POST", "/session"), ("POST", "/records")):
        assert (await served.ask(method, path, served.key, **evil)).status == 421
    local = f"localhost:{served.host.split(':')[1]}"
    named = {"Host": local, "Origin": f"http://{local}"}
    assert (await served.ask("POST", "/session", served.key, **named)).status == 200


@pytest.mark.parametrize(("method", "path"), [("GET", "/x"), ("GET", "/records"), ("PUT", "/")])
async def test_there_is_nothing_else(served: Served, method: str, path: str) -> None:
    assert (await served.ask(method, path)).status == 404


@pytest.mark.parametrize(
    "data",
    [b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nA: " + b"x" * HEADER_BYTES_MAX],
)
async def test_what_is_no_request_ends_its_connection_alone(served: Served, data: bytes) -> None:
    async with await served.connect() as stream:
        with suppress(trio.BrokenResourceError):  # unread data makes it a reset
            await stream.send_all(data)
            assert await stream.receive_some() == b""
    assert (await served.ask("GET", "/")).status == 200


async def test_who_sends_no_request_is_cut_off(served: Served, autojump_clock: Any) -> None:
    async with await served.connect() as stream:
        assert await stream.receive_some() == b""
    assert 10 <= trio.current_time() < 11


async def test_request_in_many_pieces_is_cut_off(served: Served, autojump_clock: Any) -> None:
    async with await served.connect() as stream:
        with suppress(trio.BrokenResourceError):
            for byte in b"GET / HTTP/1.1\r\nHost: x":
                await stream.send_all(bytes([byte]))
                await trio.testing.wait_all_tasks_blocked(0.001)
            assert await stream.receive_some() == b""
    assert trio.current_time() < REQUEST_S_MAX


async def test_reader_that_sends_more_than_its_request_is_cut_off(served: Served) -> None:
    session = await served.session()
    async with await served.connect() as stream:
        await stream.send_all(served.request("POST", "/records", session))
        await Lines(stream).until("200")
        await stream.send_all(b"x")
        with suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                pass


async def test_connections_that_send_nothing_keep_nobody_out(
    served: Served, autojump_clock: Any
) -> None:
    """One more than there may be ends the oldest of them, and no stream."""
    session = await served.session()
    async with AsyncExitStack() as left, served.reading(session) as lines:
        idle = [
            await left.enter_async_context(await served.connect()) for _ in range(STRANGERS_MAX)
        ]
        await trio.testing.wait_all_tasks_blocked(0.01)
        for _ in range(3):
            assert (await served.ask("GET", "/")).status == 200
        assert trio.current_time() < REQUEST_S_MAX
        assert await idle[0].receive_some() == b""
        served.feed.put(b"on\n")
        assert await lines.until("on\n")


async def test_new_reader_gets_the_last_lines_first(served: Served) -> None:
    session = await served.session()
    line = b"x" * 2**16 + b"\n"
    for _ in range(BACKLOG_BYTES_MAX // len(line) + 10):
        served.feed.put(line)
    served.feed.put(b"last\n")
    async with served.reading(session) as lines:
        text = await lines.until("last")
    assert BACKLOG_BYTES_MAX // 2 < len(text) < BACKLOG_BYTES_MAX + 2**16


async def test_readers_are_few_and_one_that_goes_makes_room(served: Served) -> None:
    session = await served.session()
    async with trio.open_nursery() as nursery:
        gone = [trio.Event() for _ in range(READERS_MAX)]
        for each in gone:
            await nursery.start(_read_until, served, session, each)
        assert (await served.ask("POST", "/records", session)).status == 429
        gone[0].set()
        status = 429
        while status == 429:  # until the server has seen it go
            async with await served.connect() as stream:
                await stream.send_all(served.request("POST", "/records", session))
                status = answer_of(await stream.receive_some()).status
        assert status == 200
        for each in gone:
            each.set()


async def _read_until(
    served: Served, session: str, gone: trio.Event, task_status: trio.TaskStatus[None]
) -> None:
    async with served.reading(session) as lines:
        await lines.until("200")
        task_status.started()
        await gone.wait()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_connection_that_does_not_go_on_ends_alone(
    sent: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    """It sends no whole request, or does not read the answer."""
    server = ViewServer(PAGE, "default-src 'none'", Feed())
    to_server, received = anyio.create_memory_object_stream[bytes](1)
    answered, from_server = anyio.create_memory_object_stream[bytes]()
    with to_server, from_server:
        if sent:
            to_server.send_nowait(sent)
        await server.serve_one(StapledObjectStream(answered, received))
    assert trio.current_time() == pytest.approx(REQUEST_S_MAX)


async def test_lines_for_a_slow_browser_are_bounded_and_counted() -> None:
    feed = Feed()
    reader = feed.open()
    assert reader is not None
    line = b"x" * 1023 + b"\n"
    count = READER_BYTES_MAX // len(line)
    for _ in range(count + 7):
        feed.put(line)
    assert await reader.next_lines() == line * count + b'{"lost":7}\n'
    feed.put(b"next\n")
    assert await reader.next_lines() == b"next\n"


def test_live_rows_are_those_of_a_page() -> None:
    trace = trace_of("everyday")
    lines: list[bytes] = []
    rows = LiveRows(lines.append, nothing_is_broken)
    for record in trace:
        rows.add(told(record))
    shown = [json.loads(line)["row"] for line in lines]
    assert [each["n"] for each in shown] == [record.n for record in trace]
    make = Rows()
    assert [each.get("state", "") for each in shown] == [
        row.state for record in trace if (row := make.add(record))
    ]
    assert any("27.alloc.2" in each.get("clauses", ()) for each in shown)


def test_after_a_gap_rows_begin_anew() -> None:
    trace = trace_of("everyday")
    lines: list[bytes] = []
    rows = LiveRows(lines.append, nothing_is_broken)
    taken = next(at for at, record in enumerate(trace) if record.kind == "recv")
    for record in trace[:taken]:
        rows.add(told(record))
    rows.add({"lost": 5})
    rows.add(told(trace[taken]))
    assert json.loads(lines[-2]) == {"lost": 5}
    assert json.loads(lines[-1])["row"]["text"]


@pytest.mark.parametrize("first", [0, 60, 150])
def test_clause_that_is_broken_is_told_wherever_the_rows_begin(first: int) -> None:
    trace = trace_of("everyday")
    alloc = find_all(trace, "sched.alloc", "request")[-1]
    lines: list[bytes] = []
    rows = LiveRows(lambda _: None, lines.append)
    for record in edit_payload(trace, alloc, id="seven")[first:]:
        rows.add(told(record))
    found = [json.loads(line)["broken"] for line in lines]
    cause = found[0]
    assert (cause["clause"], cause["n"], cause["party"]) == ("27.alloc.2", alloc.n, "job-manager")
    assert not any(each.get("is_last") for each in found)


def test_of_one_clause_a_few_violations_are_told_also_after_a_gap() -> None:
    trace = trace_of("everyday")
    alloc = find_all(trace, "sched.alloc", "request")[-1]
    broken = edit_payload(trace, alloc, id="seven")[alloc.n - 1]
    lines: list[bytes] = []
    rows = LiveRows(lambda _: None, lines.append)
    for n in range(1, 2 * REPORTED_MAX):
        rows.add(told(msgspec.structs.replace(broken, n=n)))
        if n == 2:
            rows.add({"lost": 5})
    found = [json.loads(line)["broken"] for line in lines]
    of_clause = [each for each in found if each["clause"] == "27.alloc.2"]
    assert [each["n"] for each in of_clause] == list(range(1, REPORTED_MAX + 1))
    assert [each.get("is_last", False) for each in of_clause] == [False] * (REPORTED_MAX - 1) + [
        True
    ]


def test_what_is_broken_is_kept_for_each_reader() -> None:
    feed = Feed()
    slow = feed.open()
    assert slow is not None
    line = b"x" * 1023 + b"\n"
    feed.keep(b"broken\n")
    for _ in range(READER_BYTES_MAX // len(line) + 1):
        feed.put(line)
    feed.keep(b"broken again\n")
    new = feed.open()
    assert new is not None
    for lines in (trio.run(slow.next_lines), trio.run(new.next_lines)):
        assert b"broken\n" in lines
        assert b"broken again\n" in lines
    assert trio.run(feed_reader(feed).next_lines).startswith(b"broken\nbroken again\n" + line)


def feed_reader(feed: Feed) -> Reader:
    reader = feed.open()
    assert reader is not None
    return reader


def nothing_is_broken(line: bytes) -> None:
    raise AssertionError(line)


def told(record: Record) -> dict[str, Any]:
    return {"record": record_to_json(record).decode()}
