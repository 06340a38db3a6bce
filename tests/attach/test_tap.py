"""A tap between a broker and a module: what passes, what the trace has, and how it ends."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from flux_trio.attach.tap.account import NOTHING_LEFT, Account, UnendedModule
from flux_trio.attach.tap.core import PassOn, TapCore
from flux_trio.attach.tap.rules import parse_orders
from flux_trio.attach.tap.tapping import JOURNAL_TAG, LOADER_ORDER, Tap, TapEnd
from flux_trio.attach.tap.trace_file import opened_trace
from flux_trio.editions.rfc05 import loader_command
from flux_trio.formats import FormatError
from flux_trio.messages import Message, Request, Response, topics
from flux_trio.messages.native import Frame, encode, to_frame, to_message
from flux_trio.trace import Kind, Record, Trace, record_from_json
from tests.support.instance import DEADLINE_S

JOB_MANAGER = "1b4f-job-manager"
ROUTES = (JOB_MANAGER, "0d0d-broker")


def pair() -> tuple[TapEnd, TapEnd]:
    streams = [
        TapEnd(trio.SocketStream(trio.socket.from_stdlib_socket(each)))
        for each in socket.socketpair()
    ]
    return streams[0], streams[1]


@dataclass
class Tapped:
    """The far ends of a tap on the module sched-fifo, and its trace."""

    broker: TapEnd
    module: TapEnd
    records: list[Record]

    async def passes(self, source: TapEnd, target: TapEnd, *messages: Message) -> list[Any]:
        """Send, and return what comes out of the other end."""
        await source.send(map(to_frame, messages))
        return [to_message(each) for each in await target.receive()]

    def traced(self) -> list[tuple[str, str, str, str]]:
        """Kind, ends, and topic or type of the fault."""
        return [
            (each.kind, each.party, each.peer, getattr(each.message, "topic", "") or _type(each))
            for each in self.records
            if each.kind != Kind.RECV
        ]


def _type(record: Record) -> str:
    return str((record.data or {}).get("type") or (record.data or {}).get("what"))


@asynccontextmanager
async def tapping(*args: str, is_traced: bool = True) -> AsyncIterator[Tapped]:
    (broker, near_broker), (module, near_module) = pair(), pair()
    records: list[Record] = []
    trace = Trace(trio.current_time)
    trace.add_sink(records.append)
    account = Account(trace, "sched-fifo", "5fed") if is_traced else None
    tap = Tap(near_broker, near_module, "sched-fifo", TapCore(parse_orders(args).rules), account)
    async with AsyncExitStack() as stack:
        for side in (broker, near_broker, module, near_module):
            await stack.enter_async_context(side.stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tap.run)
            with trio.fail_after(DEADLINE_S):
                yield Tapped(broker, module, records)
            await broker.stream.aclose()


def alloc(jobid: int) -> Request:
    return Request("sched.alloc", {"id": jobid}, userid=0, rolemask=5, routes=ROUTES)


def success(jobid: int, **more: Any) -> Response:
    return Response("sched.alloc", {"id": jobid, "type": 0, **more}, routes=ROUTES)


async def test_frames_pass_byte_for_byte_in_both_directions() -> None:
    raw = Frame(1, 0xFFFFFFFF, 0, "log.append", b"<7>1 text \xff", (), 4)
    spaced = Frame(2, 0, 3, "a.b", b'{"x": 1.50}\0', ("hop",))
    async with tapping(is_traced=False) as tapped:
        for source, target in ((tapped.broker, tapped.module), (tapped.module, tapped.broker)):
            await source.send([raw, spaced])
            got = [*await target.receive()]
            if len(got) == 1:
                got += await target.receive()
            assert list(map(encode, got)) == list(map(encode, (raw, spaced)))


async def test_the_trace_has_headers_and_the_names_of_both_ends() -> None:
    async with tapping() as tapped:
        (journal,) = await tapped.broker.receive()
        assert (journal.topic, journal.second) == (topics.JOB_EVENTS, JOURNAL_TAG)
        assert journal.payload == b'{"full":false}\0'
        hello = Request("job-manager.sched-hello", {}, 2)
        assert await tapped.passes(tapped.module, tapped.broker, hello) == [hello]
        assert await tapped.passes(tapped.broker, tapped.module, alloc(7)) == [alloc(7)]
        assert await tapped.passes(tapped.module, tapped.broker, success(7)) == [success(7)]
    sends = [each for each in tapped.records if each.kind == Kind.SEND][1:]
    ends = [(each.party, each.peer) for each in sends]
    assert ends == [
        ("sched-fifo", "job-manager"),
        ("job-manager", "sched-fifo"),
        ("sched-fifo", "job-manager"),
    ]
    routes = [each.message.routes for each in sends if isinstance(each.message, Request | Response)]
    assert routes == [("sched-fifo", "5fed"), ("job-manager", *ROUTES), ("job-manager", *ROUTES)]


async def test_a_client_has_a_name_of_its_own() -> None:
    async with tapping() as tapped:
        ping = Request("sched-fifo.ping", {}, 3, routes=("0123456789abc", "connector"))
        assert await tapped.passes(tapped.broker, tapped.module, ping) == [ping]
    last = tapped.records[-1]
    assert (last.party, last.peer) == ("sched-fifo", "client-01234567")


async def test_what_the_journal_tells_is_recorded_and_does_not_reach_the_module() -> None:
    async with tapping() as tapped:
        await tapped.broker.receive()
        event = Response(topics.JOB_EVENTS, {"id": 7, "events": []}, matchtag=JOURNAL_TAG)
        another = Response(topics.JOB_EVENTS, {"id": 7, "events": []}, matchtag=1)
        assert await tapped.passes(tapped.broker, tapped.module, event, another) == [another]
    assert tapped.traced()[1:] == [
        ("send", "job-manager", "flux-trio-tap", topics.JOB_EVENTS),
        ("send", "job-manager", "sched-fifo", topics.JOB_EVENTS),
    ]


async def test_a_fault_is_recorded_as_if_the_sender_had_made_it() -> None:
    rules = ("tap-drop=tx,response,sched.alloc,n=1", "tap-duplicate=tx,response,sched.alloc,n=2")
    async with tapping(*rules) as tapped:
        await tapped.broker.receive()
        await tapped.passes(tapped.broker, tapped.module, alloc(7))
        got = await tapped.passes(tapped.module, tapped.broker, success(7), success(8))
        assert got == [success(8), success(8)]
    assert tapped.traced()[2:] == [
        ("fault", "flux-trio-tap", "", "drop"),
        ("fault", "flux-trio-tap", "", "duplicate"),
        ("send", "sched-fifo", "job-manager", "sched.alloc"),
        ("send", "sched-fifo", "job-manager", "sched.alloc"),
    ]
    dropped = next(each.data for each in tapped.records if each.kind == Kind.FAULT)
    assert dropped is not None
    assert (dropped["rule"], dropped["count"]) == (rules[0], 1)
    assert dropped["payload"] == {"id": 7, "type": 0}


async def test_what_is_delayed_comes_later(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    async with tapping("tap-delay=rx,request,sched.alloc,s=5", is_traced=False) as tapped:
        began = trio.current_time()
        got = await tapped.passes(tapped.broker, tapped.module, alloc(7), alloc(8))
        assert (got, trio.current_time() - began) == ([alloc(8)], 0.0)
        (late,) = await tapped.module.receive()
        assert (to_message(late), trio.current_time() - began) == (alloc(7), 5.0)


async def test_a_request_lets_go_of_what_is_held() -> None:
    release = Request("sched-fifo.tap-release", None, 9, routes=("client",))
    async with tapping("tap-hold=tx,response,sched.alloc", is_traced=False) as tapped:
        got = await tapped.passes(tapped.module, tapped.broker, success(7), success(8))
        assert got == [success(8)]
        await tapped.broker.send([to_frame(release)])
        got = [to_message(each) for each in await tapped.broker.receive()]
        if len(got) == 1:
            got += [to_message(each) for each in await tapped.broker.receive()]
        answer = Response("sched-fifo.tap-release", {"released": 1}, 0, 9, routes=("client",))
        assert got == [answer, success(7)]


async def test_what_is_kept_back_when_the_module_ends_is_lost_and_noted() -> None:
    async with tapping("tap-hold=tx,response,sched.alloc") as tapped:
        await tapped.broker.receive()
        await tapped.passes(tapped.module, tapped.broker, success(7), success(8))
        await tapped.module.stream.aclose()
    assert tapped.traced()[-1] == ("fault", "flux-trio-tap", "", "lost")


async def test_a_trace_goes_on_with_that_of_the_load_before(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    for load in range(2):
        async with opened_trace(path) as (trace, lines, left):
            account = Account(trace, "sched-fifo", f"uuid-{load}", lines.flush)
            assert (account.goes_on, left) == (bool(load), NOTHING_LEFT)
            account.begin(left)
            account.end()
        with path.open("ab") as file:
            file.write(b'{"n":9,"t":0.0,"ki')  # a crash cuts a line
    text = path.read_text()
    assert text.count('"kind":"source"') == 1
    assert text.count('"what":"started"') == text.count('"what":"crashed"') == 2
    assert path.stat().st_mode & 0o777 == 0o600


async def test_the_end_of_a_load_whose_tap_was_killed_is_added(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    hello = Request("job-manager.sched-hello", {}, 2)
    async with opened_trace(path) as (trace, lines, left):
        account = Account(trace, "sched-fifo", "uuid-0", lines.flush)
        account.begin(left)
        account.note(PassOn("tx", to_frame(hello), hello))
    async with opened_trace(path) as (trace, lines, left):
        assert left == UnendedModule("sched-fifo", frozenset({("sched-fifo", "job-manager")}))
        Account(trace, "sched-fifo", "uuid-1", lines.flush).begin(left)
    with path.open() as file:
        records = [record_from_json(line) for line in file][-4:]
    assert [getattr(each.message, "topic", "") or _type(each) for each in records[::2]] == [
        "job-manager.disconnect",
        "crashed",
    ]
    assert _type(records[-1]) == "started"


@pytest.mark.parametrize("text", ["precious\n", "precious"])
async def test_a_file_with_something_else_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(FormatError, match="expected an empty file, or a trace of flux-trio-tap"):
        async with opened_trace(path):
            pass
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("loader", "path", "command"),
    [
        ("", "/m/sched-fifo.py", "module-python-exec"),
        ("", "/m/job-exec.so", "module-exec"),
        ("", "/m/job-exec.so.2", "module-exec"),
        ("/opt/loader", "/m/anything", "/opt/loader"),
    ],
)
def test_the_loader_is_that_of_the_file_or_of_the_orders(
    loader: str, path: str, command: str
) -> None:
    assert loader_command(loader, path, LOADER_ORDER) == ["flux", command, path]


def test_a_file_of_an_unknown_kind_needs_a_loader() -> None:
    with pytest.raises(FormatError, match="or its loader in tap-loader=, got"):
        loader_command("", "/etc/passwd", LOADER_ORDER)
