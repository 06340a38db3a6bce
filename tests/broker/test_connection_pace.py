"""How fast a remote peer is read: it is not to be served before all others."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from flux_trio.broker import connections, guests
from flux_trio.messages import ROLE_OWNER, ROLE_USER, Errno, Flag, Level, Request, respond
from flux_trio.transports import Credentials, EndOfConnection, MemoryConnection
from flux_trio.transports.base import BEHIND_MESSAGES
from tests.broker.test_connections import Remotes, receive
from tests.support.modules import echo, listener

STREAMING = int(Flag.STREAMING)


@pytest.fixture
async def world(nursery: trio.Nursery) -> Remotes:
    world = Remotes(nursery)
    await world.load("echo", echo)
    return world


async def silent_service(world: Remotes) -> list[Any]:
    """`mute` takes requests and does not answer; what it has heard."""
    heard: list[Any] = []
    await world.load("mute", listener("mute", heard))
    return heard


def ask(connection: MemoryConnection, first: int, count: int, flags: int = 0) -> None:
    for matchtag in range(first, first + count):
        connection.send_nowait(Request("mute.x", None, matchtag, flags))


async def test_peer_that_is_ahead_of_its_answers_is_read_after_a_pause(
    world: Remotes, autojump_clock: trio.testing.MockClock
) -> None:
    heard = await silent_service(world)
    ann = await world.connect(10_000)
    ask(ann, 1, connections.CALLS_AHEAD + 1)
    await trio.testing.wait_all_tasks_blocked()
    began = trio.current_time()
    ask(ann, 1000, 1)
    while len(heard) < connections.CALLS_AHEAD + 2:  # noqa: ASYNC110 - it has no event
        await trio.sleep(0.001)
    assert trio.current_time() - began == pytest.approx(connections.PAUSE_S, abs=0.01)


async def test_peer_that_waits_on_streams_is_not_held_up(
    world: Remotes, autojump_clock: trio.testing.MockClock
) -> None:
    heard = await silent_service(world)
    ann = await world.connect(10_000)
    ask(ann, 1, 2 * connections.CALLS_AHEAD, STREAMING)
    await trio.testing.wait_all_tasks_blocked()
    ask(ann, 5000, 1)
    await trio.testing.wait_all_tasks_blocked()
    assert len(heard) == 2 * connections.CALLS_AHEAD + 1


async def test_peer_that_is_answered_is_read_at_once(
    world: Remotes, autojump_clock: trio.testing.MockClock
) -> None:
    ann = await world.connect(10_000)
    began = trio.current_time()
    for matchtag in range(1, 3 * connections.CALLS_AHEAD):
        ann.send_nowait(Request("echo.back", None, matchtag))
    await receive(ann, 3 * connections.CALLS_AHEAD - 1)
    assert trio.current_time() == began


async def test_requests_beyond_the_bound_are_refused_and_others_can_end(
    world: Remotes, autojump_clock: trio.testing.MockClock
) -> None:
    heard = await silent_service(world)
    ann = await world.connect(10_000)
    ask(ann, 1, connections.OPEN_MAX + 2, STREAMING)
    for refused in await receive(ann, 2):
        assert (refused.errnum, refused.payload) == (
            Errno.EAGAIN,
            connections.TOO_MANY.format(connections.OPEN_MAX),
        )
    await trio.testing.wait_all_tasks_blocked()
    assert len(heard) == connections.OPEN_MAX
    answer = respond(heard[0])
    assert answer is not None
    world.router.route(world.router.peers["mute"], answer)
    assert await receive(ann, 1)
    ask(ann, 9000, 1, STREAMING)
    await trio.testing.wait_all_tasks_blocked()
    assert heard[-1].matchtag == 9000


async def test_one_matchtag_used_often_counts_as_often(
    world: Remotes, autojump_clock: trio.testing.MockClock
) -> None:
    heard = await silent_service(world)
    ann = await world.connect(10_000)
    for _ in range(connections.OPEN_MAX + 1):
        ann.send_nowait(Request("mute.x", None, 7, STREAMING))
    (refused,) = await receive(ann, 1)
    await trio.testing.wait_all_tasks_blocked()
    assert refused.errnum == Errno.EAGAIN
    assert len(heard) == connections.OPEN_MAX


async def test_peer_that_sends_and_does_not_read_is_dropped(
    world: Remotes, autojump_clock: trio.testing.MockClock
) -> None:
    ann = await world.connect(10_000)
    for matchtag in range(1, 2 * BEHIND_MESSAGES):
        ann.send_nowait(Request("echo.back", None, matchtag))
    await trio.testing.wait_all_tasks_blocked()
    assert "ann-1" in world.router.peers
    await trio.sleep(connections.BEHIND_S_MAX + 1)
    assert "ann-1" not in world.router.peers
    (entry,) = world.log
    text = "it sends requests and has not read its answers for 10 s"
    assert (entry.level, entry.party, entry.text) == (Level.ERR, "ann-1", f"dropped: {text}")
    with pytest.raises(EndOfConnection, match=text):
        await receive(ann, 2 * BEHIND_MESSAGES)


async def test_peer_that_reads_late_but_in_time_goes_on(
    world: Remotes, autojump_clock: trio.testing.MockClock
) -> None:
    ann = await world.connect(10_000)
    count = 2 * BEHIND_MESSAGES
    for matchtag in range(1, count + 1):
        ann.send_nowait(Request("echo.back", None, matchtag))
    await trio.sleep(connections.BEHIND_S_MAX / 2)
    assert len(await receive(ann, count)) == count
    assert list(world.log) == []


async def test_what_is_open_of_a_guest_is_bounded_over_all_connections_in_number_and_bytes(
    world: Remotes, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guests, "OPEN_OF_GUEST_MAX", 3)
    monkeypatch.setattr(guests, "OPEN_OF_GUEST_BYTES_MAX", 100)
    heard = await silent_service(world)
    seven, eight = (Credentials(userid, ROLE_USER, "guest") for userid in (7, 8))
    one, two = [await world.connect(credentials=seven) for _ in range(2)]
    other = await world.connect(credentials=eight)
    owner = await world.connect(credentials=Credentials(100, ROLE_OWNER, "owner"))
    ask(one, 1, 2, STREAMING)
    await trio.testing.wait_all_tasks_blocked()
    ask(two, 1, 2, STREAMING)
    (refused,) = await receive(two, 1)
    text = "user 7 has 3 requests open: wait for some of them to end"
    assert (refused.matchtag, refused.errnum, refused.payload) == (2, Errno.EAGAIN, text)
    ask(owner, 1, 5, STREAMING)
    other.send_nowait(Request("mute.x", {"key": "x" * 100}, 1, STREAMING))
    (refused,) = await receive(other, 1)
    assert refused.payload == "user 8 has 100 bytes of requests open: wait for some of them to end"
    await trio.testing.wait_all_tasks_blocked()
    assert len(heard) == 8
    await one.aclose()
    await trio.testing.wait_all_tasks_blocked()
    ask(two, 3, 2, STREAMING)  # what the first had open is open no more
    await trio.testing.wait_all_tasks_blocked()
    assert [request.matchtag for request in heard if request.userid == 7][-2:] == [3, 4]
    await two.aclose()
    await other.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert world.router.guests == {}


async def test_guest_that_is_ahead_of_its_answers_is_read_after_a_pause_on_every_connection(
    world: Remotes, autojump_clock: trio.testing.MockClock
) -> None:
    heard = await silent_service(world)
    one, two = [await world.connect() for _ in range(2)]
    ask(one, 1, guests.CALLS_OF_GUEST_AHEAD + 1)
    await trio.testing.wait_all_tasks_blocked()
    ask(two, 1, 1)  # is on its way: this connection has not paused yet
    await trio.testing.wait_all_tasks_blocked()
    ask(two, 2, 1)
    await trio.testing.wait_all_tasks_blocked()
    assert len(heard) == guests.CALLS_OF_GUEST_AHEAD + 2
    await trio.sleep(2 * connections.PAUSE_S)
    assert len(heard) == guests.CALLS_OF_GUEST_AHEAD + 3
