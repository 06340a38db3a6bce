"""Remote peers, over memory and over a WebSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from flux_trio.broker import Handle, serve_connection
from flux_trio.messages import ROLE_USER, Errno, Event, Level, Message, Request, respond
from flux_trio.transports import (
    Connection,
    ConnectionLost,
    ConnectionOverflow,
    Credentials,
    EndOfConnection,
    MemoryConnection,
    connect_websocket,
    memory_pair,
    serve_websocket,
)
from tests.support.asking import GUEST_USERID
from tests.support.modules import ModuleWorld, echo, listener, send

ANN = Credentials(GUEST_USERID, ROLE_USER, "ann")


class Remotes(ModuleWorld):
    """A broker that others connect to."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self.nursery = nursery

    async def serve(self, connection: Connection, credentials: Credentials = ANN) -> None:
        await serve_connection(self.router, self.write_log, connection, credentials)

    async def connect(self, bound: int = 1000, credentials: Credentials = ANN) -> MemoryConnection:
        """The peer's end of a connection over memory that is being served."""
        ours, theirs = memory_pair(bound)
        self.nursery.start_soon(self.serve, ours, credentials)
        await trio.testing.wait_all_tasks_blocked()
        return theirs


@pytest.fixture
async def world(nursery: trio.Nursery) -> Remotes:
    world = Remotes(nursery)
    await world.load("echo", echo)
    return world


@asynccontextmanager
async def over_websocket(world: Remotes) -> AsyncIterator[Connection]:
    def authenticate(token: str) -> Credentials | None:
        return ANN if token == "secret" else None

    async with trio.open_nursery() as serving:
        uri = await serving.start(serve_websocket, "127.0.0.1", 0, authenticate, world.serve)
        async with connect_websocket(uri, "secret") as connection:
            yield connection
        serving.cancel_scope.cancel()


@pytest.fixture(params=["memory", "websocket"])
async def ann(request: pytest.FixtureRequest, world: Remotes) -> AsyncIterator[Connection]:
    if request.param == "memory":
        yield await world.connect()
    else:
        async with over_websocket(world) as connection:
            yield connection


async def receive(connection: Connection, count: int) -> list[Any]:
    messages: list[Message] = []
    while len(messages) < count:
        messages += await connection.receive()
    return messages


async def test_requests_and_answers_are_routed_both_ways(ann: Connection) -> None:
    for matchtag in range(1, 50):
        ann.send_nowait(Request("echo.back", {"n": matchtag}, matchtag))
    answers = await receive(ann, 49)
    assert [(answer.matchtag, answer.payload["n"]) for answer in answers] == [
        (n, n) for n in range(1, 50)
    ]


async def test_peer_is_who_its_credentials_say_whatever_it_claims(
    world: Remotes, ann: Connection
) -> None:
    heard: list[Any] = []
    await world.load("sink", listener("sink", heard))
    ann.send_nowait(Request("sink.x", None, 1, userid=0, rolemask=1, routes=("root",)))
    ann.send_nowait(Request("echo.back", None, 2))
    await receive(ann, 1)
    (request,) = heard
    assert (request.userid, request.rolemask, request.sender) == (GUEST_USERID, ROLE_USER, "ann-1")


async def test_events_reach_a_remote_subscriber(world: Remotes, ann: Connection) -> None:
    ann.send_nowait(Request("echo.back", None, 1))
    await receive(ann, 1)
    world.router.peers["ann-1"].subscriptions.add("job-*")
    world.handle("publisher").send(Event("job-state", {"n": 1}))
    (event,) = await receive(ann, 1)
    assert (event.topic, event.payload) == ("job-state", {"n": 1})


async def test_answer_to_a_remote_peer_is_traced_on_both_sides(
    world: Remotes, ann: Connection
) -> None:
    ann.send_nowait(Request("echo.back", None, 1))
    await receive(ann, 1)
    parties = [(record.kind, record.party) for record in world.records if record.message]
    assert parties == [("send", "ann-1"), ("recv", "echo"), ("send", "echo"), ("recv", "ann-1")]


async def test_services_of_a_peer_that_says_goodbye_are_told(
    world: Remotes, ann: Connection
) -> None:
    "6.disconnect.1"
    heard: list[Any] = []
    await world.load("sink", listener("sink", heard))
    ann.send_nowait(Request("sink.watch", None, 1))
    ann.send_nowait(Request("echo.back", None, 2))
    await receive(ann, 1)
    await ann.aclose()
    while len(heard) < 2:
        await trio.testing.wait_all_tasks_blocked(0.001)
    assert [(request.topic, request.sender) for request in heard] == [
        ("sink.watch", "ann-1"),
        ("sink.disconnect", "ann-1"),
    ]
    assert "ann-1" not in world.router.peers
    assert list(world.log) == []


async def test_several_connections_of_one_user_have_names_of_their_own(world: Remotes) -> None:
    first, second = await world.connect(), await world.connect()
    for connection in (first, second):
        connection.send_nowait(Request("echo.back", None, 1))
        (answer,) = await receive(connection, 1)
        assert answer.matchtag == 1
    assert {"ann-1", "ann-2"} <= set(world.router.peers)


async def test_peer_that_does_not_read_is_dropped_by_name_and_others_go_on(world: Remotes) -> None:
    "design, hangs: a bounded queue, then it is dropped, by name, in the log."
    heard: list[Any] = []
    await world.load("sink", listener("sink", heard))
    stuck, other = await world.connect(bound=3), await world.connect()
    stuck.send_nowait(Request("sink.watch", None, 99))
    for matchtag in range(1, 3):
        stuck.send_nowait(Request("echo.count", None, matchtag))
    await trio.testing.wait_all_tasks_blocked()
    (line,) = world.log
    why = "3 messages wait for the peer to read them"
    assert (line.level, line.party, line.text) == (Level.ERR, "ann-1", f"dropped: {why}")
    assert "ann-1" not in world.router.peers
    assert [request.topic for request in heard] == ["sink.watch", "sink.disconnect"]
    assert len(await receive(stuck, 3)) == 3
    with pytest.raises(EndOfConnection, match=why):
        await stuck.receive()
    other.send_nowait(Request("echo.back", {"a": 1}, 1))
    (answer,) = await receive(other, 1)
    assert answer.payload == {"a": 1}


class Chokes(MemoryConnection):
    """Has no room for what is called 2, and has room again."""

    def send_nowait(self, message: Message) -> None:
        if isinstance(message, Event) and message.payload == {"n": 2}:
            raise ConnectionOverflow("full")
        super().send_nowait(message)


async def test_nothing_follows_a_gap(world: Remotes) -> None:
    ours, theirs = memory_pair()
    world.nursery.start_soon(world.serve, Chokes(ours._pair, 0))
    await trio.testing.wait_all_tasks_blocked()
    world.router.peers["ann-1"].subscriptions.add("n")
    publisher = world.handle("publisher")
    for n in (1, 2, 3):
        publisher.send(Event("n", {"n": n}))
    (first,) = await theirs.receive()
    assert isinstance(first, Event)
    assert first.payload == {"n": 1}
    with pytest.raises(EndOfConnection, match="full"):
        await theirs.receive()
    assert [drop.data for drop in world.drops()] == [{"reason": "full"}] * 2
    assert len(list(world.log)) == 1


async def test_lost_connection_is_logged_and_its_services_are_told(world: Remotes) -> None:
    class Lost(MemoryConnection):
        async def receive(self) -> list[Message]:
            await super().receive()
            raise ConnectionLost("the cable was cut")

    ours, theirs = memory_pair()
    lost = Lost(ours._pair, 0)
    theirs.send_nowait(Request("echo.back"))
    await world.serve(lost)
    (line,) = world.log
    assert (line.level, line.party) == (Level.WARNING, "ann-1")
    assert line.text == "connection lost: the cable was cut"
    assert "ann-1" not in world.router.peers


async def test_answer_that_no_frame_can_carry_is_an_error_to_the_one_who_asked(
    world: Remotes,
) -> None:
    "Neither the connection nor the service ends by it."

    async def odd(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        handle.register("odd")
        task_status.started()
        while True:
            for request in await handle.receive():
                if request.wants_response:
                    send(handle, respond(request, {"t": float("nan")}))

    await world.load("odd", odd)
    async with over_websocket(world) as ann:
        ann.send_nowait(Request("odd.x", None, 7))
        (answer,) = await receive(ann, 1)
        assert (answer.errnum, answer.matchtag) == (Errno.EMSGSIZE, 7)
        assert answer.error_text == (
            "cannot send 'odd.x': payload.t: expected a finite number, got nan"
        )
        ann.send_nowait(Request("echo.back", None, 8))
        assert (await receive(ann, 1))[0].matchtag == 8
    assert "odd" in world.supervisor
    assert [(line.level, line.party) for line in world.log] == [(Level.ERR, "ann-1")]


async def test_cancelled_connection_is_cancelled_and_closed(world: Remotes) -> None:
    ours, theirs = memory_pair()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.serve, ours)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
    assert "ann-1" not in world.router.peers
    with pytest.raises(EndOfConnection):
        await theirs.receive()
    assert list(world.log) == []
