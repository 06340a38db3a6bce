"""What every `Connection` does: in memory, over a WebSocket, and over Flux's own wire."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from flux_trio.messages import Control, Event, Message, Request, Response
from flux_trio.transports import (
    Connection,
    ConnectionClosed,
    ConnectionOverflow,
    Credentials,
    EndOfConnection,
    NativeConnection,
    connect_native,
    connect_websocket,
    memory_pair,
    open_native,
    paced,
    serve_websocket,
)
from flux_trio.transports.base import BEHIND_MESSAGES
from flux_trio.transports.native import WELCOME
from tests.support.flux_peer import listening
from tests.support.instance import DEADLINE_S

Pair = tuple[Connection, Connection]


BOUND = 2000


@pytest.fixture(params=["memory", "websocket", "native"])
async def pair(
    request: pytest.FixtureRequest,
    nursery: trio.Nursery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Pair]:
    """Two ends that let BOUND messages wait."""
    monkeypatch.setattr(paced, "QUEUE_MESSAGES_MAX", BOUND)
    if request.param == "memory":
        yield memory_pair(BOUND)
        return
    accepted: list[Connection] = []

    async def keep(connection: Connection, credentials: Credentials) -> None:
        accepted.append(connection)
        await trio.sleep_forever()

    def anybody(_who: object) -> Credentials:
        return Credentials(1, 1, "")

    async def let_in(stream: trio.SocketStream) -> None:
        await stream.send_all(WELCOME)
        async with open_native(stream) as connection:
            await keep(connection, Credentials(1, 1, ""))

    if request.param == "native":
        listener = listening(tmp_path / "local")
        nursery.start_soon(trio.serve_listeners, let_in, [listener])
        client = connect_native(f"local://{tmp_path}/local")
    else:
        uri = await nursery.start(serve_websocket, "127.0.0.1", 0, anybody, keep)
        client = connect_websocket(uri, "token")
    async with client as connection:
        while not accepted:
            await trio.testing.wait_all_tasks_blocked(0.001)
        yield connection, accepted[0]
        nursery.cancel_scope.cancel()


@pytest.fixture(params=["one way", "the other"])
def ends(request: pytest.FixtureRequest, pair: Pair) -> Pair:
    """The two ends: who sends or closes in the test, and the other."""
    return pair if request.param == "one way" else (pair[1], pair[0])


@pytest.fixture
def heard(pair: Pair) -> Callable[[str], str]:
    """What the other end hears of the reason of a close: over Flux's own wire nothing."""
    if isinstance(pair[0], NativeConnection):
        return lambda _reason: "^the connection was closed$"
    return lambda reason: f"^the connection was closed: {reason}$"


async def receive_all(connection: Connection, count: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        messages += await connection.receive()
    return messages


async def test_every_type_of_message_arrives_as_it_was_sent(ends: Pair) -> None:
    here, there = ends
    messages = [
        Request("sched.alloc", {"id": 2**64 - 1, "jobspec": {"a": [1.5, None]}}, 7, routes=("x",)),
        Response("sched.alloc", "Function not implemented", 38, 7),
        Event("heartbeat.pulse", None, 3),
        Control(1, 2),
    ]
    for message in messages:
        here.send_nowait(message)
    assert await receive_all(there, 4) == messages


async def test_messages_arrive_in_the_order_sent_many_at_a_time(ends: Pair) -> None:
    """3.routing.5"""
    here, there = ends
    messages = [Request("a", {"n": n}) for n in range(1000)]
    for message in messages:
        here.send_nowait(message)
    first = await there.receive()
    assert len(first) > 1
    assert first + await receive_all(there, 1000 - len(first)) == messages


async def test_receive_waits_for_something_to_come(ends: Pair) -> None:
    here, there = ends
    got: list[Message] = []

    async def receive() -> None:
        got.extend(await there.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        here.send_nowait(Request("a"))
    assert got == [Request("a")]


async def test_a_cancelled_receive_loses_nothing(ends: Pair) -> None:
    here, there = ends
    with trio.CancelScope() as scope:
        scope.cancel()
        await there.receive()
    here.send_nowait(Request("a"))
    assert await there.receive() == [Request("a")]


async def test_a_big_message_arrives_whole(ends: Pair) -> None:
    here, there = ends
    message = Request("kvs.commit", {"ops": [["put", "k", "x" * 2**20], ["put", "l", "y" * 2**22]]})
    here.send_nowait(message)
    here.send_nowait(Request("a"))
    assert await receive_all(there, 2) == [message, Request("a")]


async def test_what_was_sent_before_a_close_is_received_and_then_the_end(
    ends: Pair, heard: Callable[[str], str]
) -> None:
    here, there = ends
    here.send_nowait(Request("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(here.aclose, "going home")
        assert await receive_all(there, 1) == [Request("a")]
        with pytest.raises(EndOfConnection, match=heard("going home")):
            await there.receive()
        await there.aclose()


async def test_a_closed_end_neither_sends_nor_receives(
    ends: Pair, heard: Callable[[str], str]
) -> None:
    here, there = ends
    there.send_nowait(Request("unread"))
    await trio.testing.wait_all_tasks_blocked(0.001)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_drain, there)
        await here.aclose("done")
    with pytest.raises(EndOfConnection, match="done"):
        await here.receive()
    with pytest.raises(ConnectionClosed, match="done"):
        here.send_nowait(Request("a"))
    with pytest.raises(ConnectionClosed, match=heard("done")):
        there.send_nowait(Request("a"))
    await here.aclose()
    await there.aclose()


async def _drain(connection: Connection) -> None:
    with pytest.raises(EndOfConnection):
        await receive_all(connection, 1)


async def test_a_peer_that_does_not_read_overflows_and_loses_nothing_queued(ends: Pair) -> None:
    here, there = ends
    for n in range(BOUND):
        here.send_nowait(Request("a", None, n))
    with pytest.raises(ConnectionOverflow, match=f"{BOUND} messages "):
        here.send_nowait(Request("a"))
    received = await receive_all(there, BOUND)
    assert [message.matchtag for message in received] == list(range(BOUND))
    here.send_nowait(Request("b"))
    assert await there.receive() == [Request("b")]


async def test_room_comes_when_the_peer_reads(ends: Pair) -> None:
    here, there = ends
    count = BEHIND_MESSAGES + 76
    for n in range(count):
        here.send_nowait(Request("a", {"x": "x" * 2**15}, n))
    assert here.is_behind
    has_room = trio.Event()

    async def wait() -> None:
        await here.wait_room()
        has_room.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not has_room.is_set()
        await receive_all(there, count)
        with trio.fail_after(DEADLINE_S):
            await has_room.wait()
    assert not here.is_behind


async def test_waiting_for_room_ends_when_the_connection_is_closed() -> None:
    here, there = memory_pair(2)
    for _ in range(2):
        here.send_nowait(Request("a"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(here.wait_room)
        await trio.testing.wait_all_tasks_blocked()
        await there.aclose()
