"""What the connections of one guest may take together: turns, rests and what waits to be read."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from flux_trio.transports import share as sharing
from flux_trio.transports.share import (
    GUEST_QUEUE_BYTES_MAX,
    LONG_REST_FACTOR,
    REST_FACTOR,
    REST_S_MAX,
    SLICE_MESSAGES_MAX,
    SLICE_MESSAGES_MIN,
    Share,
)


class Loop:
    """The CPU time of the loop's thread, which a test moves on."""

    def __init__(self) -> None:
        self.cpu = 100.0

    def thread_time(self) -> float:
        return self.cpu


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(sharing.time, "thread_time", loop.thread_time)
    return loop


async def take_turn(share: Share) -> float:
    """How long it was waited for, in seconds."""
    began = trio.current_time()
    async with share.turn():
        return trio.current_time() - began


async def test_guest_rests_for_longer_than_the_loop_was_busy(
    loop: Loop, autojump_clock: trio.testing.MockClock
) -> None:
    share = Share()
    await trio.sleep(1000)
    await take_turn(share)
    loop.cpu += 0.002
    assert await take_turn(share) == pytest.approx(0.002 + REST_FACTOR * 0.002)


async def test_after_much_work_the_rest_is_longer_up_to_a_bound(
    loop: Loop, autojump_clock: trio.testing.MockClock
) -> None:
    share = Share()
    await trio.sleep(1000)
    await take_turn(share)
    loop.cpu += 0.02
    assert await take_turn(share) == pytest.approx(0.02 + LONG_REST_FACTOR * 0.02)
    loop.cpu += 3.0  # most likely the work of others
    assert await take_turn(share) == pytest.approx(3.0 + REST_S_MAX)


async def test_guest_who_asks_seldom_does_not_wait(
    loop: Loop, autojump_clock: trio.testing.MockClock
) -> None:
    share = Share()
    await trio.sleep(1000)
    for _ in range(5):
        assert await take_turn(share) == 0.0
        loop.cpu += 0.002
        await trio.sleep(0.1)


async def test_what_takes_long_to_decode_is_rested_for_in_full(
    loop: Loop, autojump_clock: trio.testing.MockClock
) -> None:
    share = Share()
    await trio.sleep(1000)
    async with share.turn():
        loop.cpu += 0.5
    assert await take_turn(share) == pytest.approx(0.5 + LONG_REST_FACTOR * 0.5)


async def test_slices_get_smaller_while_the_loop_is_busy(
    loop: Loop, autojump_clock: trio.testing.MockClock
) -> None:
    share = Share()
    await trio.sleep(1000)
    for _ in range(20):
        await take_turn(share)
    assert share.slice_messages == SLICE_MESSAGES_MAX
    for _ in range(20):
        loop.cpu += 0.02
        await take_turn(share)
    assert share.slice_messages == SLICE_MESSAGES_MIN


async def test_connections_of_a_guest_come_in_turns(
    loop: Loop, autojump_clock: trio.testing.MockClock
) -> None:
    share = Share()
    order: list[str] = []

    async def connection(name: str) -> None:
        for _ in range(3):
            async with share.turn():
                order.append(name)
                loop.cpu += 0.001

    async with trio.open_nursery() as nursery:
        for name in ("a", "b"):
            nursery.start_soon(connection, name)
    assert order in (list("ababab"), list("bababa"))


async def test_what_waits_to_be_read_is_bounded() -> None:
    share = Share()
    assert share.has_room(GUEST_QUEUE_BYTES_MAX)
    share.queued_bytes = GUEST_QUEUE_BYTES_MAX
    assert not share.has_room(1)
