"""A module behind a connection, over memory and over a WebSocket, is as one in this process."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from flux_trio.broker import RemoteHandle, open_remote, serve_connection
from flux_trio.messages import ROLE_OWNER, Errno, Event, FluxError, Level, Request
from flux_trio.trace import Kind
from flux_trio.transports import (
    Connection,
    Credentials,
    EndOfConnection,
    connect_websocket,
    memory_pair,
    serve_websocket,
)
from tests.support.asking import OWNER_USERID
from tests.support.modules import ModuleWorld, echo, listener

OWNER = Credentials(OWNER_USERID, ROLE_OWNER, "owner")


class Remotes(ModuleWorld):
    """A broker that the owner's modules connect to."""

    def __init__(self, nursery: trio.Nursery, transport: str) -> None:
        super().__init__(nursery)
        self._nursery = nursery
        self._transport = transport
        self.connections: list[Connection] = []

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Connection]:
        """The module's end of a connection that is being served."""
        if self._transport == "memory":
            ours, theirs = memory_pair()
            self._nursery.start_soon(self._serve, ours, OWNER)
            yield theirs
            return
        uri = await self._nursery.start(
            serve_websocket, "127.0.0.1", 0, lambda _: OWNER, self._serve
        )
        async with connect_websocket(uri, "any") as connection:
            yield connection

    async def serve(self, main: Any) -> RemoteHandle:
        """`main` runs over a connection of its own, and has its names."""
        handle: RemoteHandle = await self._nursery.start(self.run, main)
        await handle.wait_settled()
        return handle

    async def run(self, main: Any, *, task_status: trio.TaskStatus[RemoteHandle]) -> None:
        async with (
            self.connected() as connection,
            open_remote("remote", OWNER_USERID, connection, self.now) as handle,
            trio.open_nursery() as nursery,
        ):
            await nursery.start(main, handle)
            task_status.started(handle)

    async def _serve(self, connection: Connection, credentials: Credentials) -> None:
        self.connections.append(connection)
        await serve_connection(self.router, self.write_log, connection, credentials)


@pytest.fixture(params=["memory", "websocket"])
async def world(nursery: trio.Nursery, request: pytest.FixtureRequest) -> AsyncIterator[Remotes]:
    world = Remotes(nursery, request.param)
    await world.serve_broker()
    with trio.fail_after(300):
        yield world
        nursery.cancel_scope.cancel()


async def test_remote_module_serves_its_name(world: Remotes) -> None:
    await world.serve(echo)
    client = world.client()
    assert await client.ask("echo.back", {"a": 1}) == {"a": 1}
    with pytest.raises(FluxError, match="not today"):
        await client.ask("echo.refuse")
    async with world.handle("other").stream("echo.count") as responses:
        assert [each["n"] async for each in responses] == [0, 1, 2]


async def test_name_that_is_held_ends_the_module_with_the_reason(world: Remotes) -> None:
    await world.load("here", echo)
    with pytest.RaisesGroup(
        pytest.RaisesExc(FluxError, match="service echo is already held by here"),
        flatten_subgroups=True,
    ):
        async with trio.open_nursery() as nursery:
            await nursery.start(world.run, echo)


async def test_nothing_is_sent_before_the_names_are_granted(world: Remotes) -> None:
    "Else an answer to hello could come before its sender can be called by name."
    order: list[str] = []
    heard: list[Any] = []
    await world.load("peer", listener("peer", heard))

    async def main(handle: RemoteHandle, *, task_status: trio.TaskStatus[None]) -> None:
        handle.register("first")
        handle.register("second")
        handle.send(Request("peer.hello"))
        handle.send(Request("peer.ready"))
        task_status.started()
        await trio.sleep_forever()

    world.router.trace.add_sink(
        lambda record: (
            order.append(getattr(record.message, "topic", "")) if record.kind == "send" else None
        )
    )
    await world.serve(main)
    while len(heard) < 2:
        await trio.lowlevel.checkpoint()
    register = "broker.register"
    assert order == [register, register, register, register, "peer.hello", "peer.ready"]
    assert {"first", "second"} <= world.router.services.keys()


async def test_events_that_are_subscribed_to_come(world: Remotes) -> None:
    seen = trio.Event()

    async def main(handle: RemoteHandle, *, task_status: trio.TaskStatus[None]) -> None:
        handle.subscribe("job-*")
        task_status.started()
        while True:
            for message in await handle.receive():
                assert message.topic == "job-exception"
                seen.set()

    await world.serve(main)
    publisher = world.handle("publisher")
    publisher.send(Event("other"))
    publisher.send(Event("job-exception", {"id": 1}))
    await seen.wait()


async def test_what_it_logs_and_notes_is_the_instances(world: Remotes) -> None:
    handle = await world.serve(echo)
    handle.log(Level.ERR, "no disk")
    handle.note("state", {"pending": 0})
    await handle.call("broker.info")  # comes after both
    (entry,) = world.log
    assert (entry.level, entry.text, entry.party) == (Level.ERR, "no disk", "owner-1")
    (note,) = [record for record in world.records if record.kind == "state"]
    assert (note.party, note.data) == ("owner-1", {"pending": 0})


async def test_end_of_the_connection_ends_the_module_and_drops_its_names(world: Remotes) -> None:
    with pytest.RaisesGroup(EndOfConnection, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            handle = await nursery.start(world.run, echo)
            await handle.wait_settled()
            client = world.client()
            tag = client.send("echo.open", streaming=True)
            assert (await client.answer(tag)).errnum == 0
            nursery.start_soon(functools.partial(world.connections[-1].aclose, "bye"))
            assert (await client.answer(tag)).errnum == Errno.ENOSYS
    assert "echo" not in world.router.services


async def test_note_stands_in_the_trace_between_the_messages_of_its_module(world: Remotes) -> None:
    "Else the state that it tells would be compared with messages that changed it later."
    await world.load("peer", listener("peer", []))
    handle = await world.serve(echo)
    for number in range(3):
        handle.send(Request("peer.before", {"n": number}))
        handle.note("state", {"n": number})
    assert await handle.call("echo.back", {"a": 1}) == {"a": 1}
    written = [
        record.data["n"] if record.data else record.message.payload["n"]
        for record in world.records
        if record.kind == Kind.STATE
        or (record.kind == Kind.SEND and record.message.topic == "peer.before")
    ]
    assert written == [0, 0, 1, 1, 2, 2]
