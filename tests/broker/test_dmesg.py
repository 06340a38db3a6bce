"""log.dmesg: the instance's log as its owner reads it."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from flux_trio.broker import LogEntry
from flux_trio.messages import Errno, FluxError, Level, Request, topics
from flux_trio.messages.types import NORESPONSE
from tests.support.modules import ModuleWorld


class LoggingWorld(ModuleWorld):
    def write(self, text: str) -> None:
        self.log.write(LogEntry(12.5, Level.ERR, "kvs", text))

    async def read(self, **how: bool) -> list[str]:
        async with self.handle("reader").stream(topics.LOG_DMESG, how) as entries:
            return [entry["text"] async for entry in entries]


@pytest.fixture
async def world(nursery: trio.Nursery) -> LoggingWorld:
    world = LoggingWorld(nursery)
    await world.serve_broker(log=world.log)
    return world


async def test_the_ring_is_told_and_then_the_end(world: LoggingWorld) -> None:
    world.write("one")
    world.write("two")
    async with world.handle("reader").stream(topics.LOG_DMESG, {}) as entries:
        told = [entry async for entry in entries]
    assert told[0] == {"timestamp": 12.5, "level": 3, "party": "kvs", "text": "one"}
    assert [entry["text"] for entry in told] == ["one", "two"]


async def test_who_follows_is_told_what_comes_until_it_has_enough(world: LoggingWorld) -> None:
    world.write("old")
    reader = world.client("reader")
    tag = reader.send(topics.LOG_DMESG, {"follow": True, "nobacklog": True}, streaming=True)
    await trio.testing.wait_all_tasks_blocked()
    world.write("new")
    answer = await reader.answer(tag)
    assert isinstance(answer.payload, dict)
    assert answer.payload["text"] == "new"
    assert await reader.ask(topics.LOG_DMESG_CANCEL, {"matchtag": tag}) is None
    assert (await reader.answer(tag)).errnum == Errno.ECANCELED
    world.write("newer")  # to nobody
    assert not world.drops()


async def test_who_is_gone_is_told_nothing(world: LoggingWorld) -> None:
    reader = world.handle("reader")
    async with reader.stream(topics.LOG_DMESG, {"follow": True}):
        await trio.testing.wait_all_tasks_blocked()
        reader.close()
        await trio.testing.wait_all_tasks_blocked()
    world.write("x")
    assert not world.drops()


async def test_the_log_can_be_cleared(world: LoggingWorld) -> None:
    world.write("one")
    await world.handle("owner").call(topics.LOG_CLEAR)
    assert await world.read() == []


async def test_the_entries_are_counted_also_when_they_are_cleared(world: LoggingWorld) -> None:
    owner = world.handle("owner")
    before = await owner.call(topics.stats_of(topics.LOG))
    world.write("one")
    world.write("two")
    after = await owner.call(topics.stats_of(topics.LOG))
    assert {key: after[key] - before[key] for key in after} == {"ring-used": 2, "count": 2}
    await owner.call(topics.LOG_CLEAR)
    assert await owner.call(topics.stats_of(topics.LOG)) == {**after, "ring-used": 0}


@pytest.mark.parametrize("topic", [topics.LOG_CLEAR, topics.LOG_DMESG, topics.LOG_DMESG_CANCEL])
async def test_the_log_is_the_owners(world: LoggingWorld, topic: str) -> None:
    with pytest.raises(FluxError) as refused:
        await world.guest().call(topic, {"matchtag": 1})
    assert refused.value.errnum == Errno.EPERM


@pytest.mark.parametrize(
    ("topic", "errnum"),
    [
        (topics.LOG_DMESG, Errno.EPROTO),  # not streaming
        (topics.LOG_DMESG_CANCEL, Errno.ENOENT),
        ("log.nosuch", Errno.ENOSYS),
    ],
)
async def test_what_cannot_be_answered_says_why(
    world: LoggingWorld, topic: str, errnum: int
) -> None:
    with pytest.raises(FluxError) as refused:
        await world.handle("reader").call(topic, {"matchtag": 7})
    assert refused.value.errnum == errnum


@pytest.fixture
async def native(nursery: trio.Nursery) -> LoggingWorld:
    """A broker with a native door."""
    world = LoggingWorld(nursery)
    await world.serve_broker(log=world.log, has_native_door=True)
    return world


async def test_with_a_native_door_the_log_is_lines_as_flux_reads_them(native: LoggingWorld) -> None:
    native.write("one")
    reader = native.client("flux")
    tag = reader.send(topics.LOG_DMESG, {"follow": False, "nobacklog": False}, streaming=True)
    line = "<24>1 1970-01-01T00:00:12.500000Z 0 kvs - - - one"  # the level, 3, shifted by 3
    assert (await reader.answer(tag)).payload == line
    assert (await reader.answer(tag)).errnum == Errno.ENODATA
    assert await native.read(entries=True) == ["one"]


async def test_what_logger_of_flux_core_has_sent_is_written(native: LoggingWorld) -> None:
    reader = native.client("reader")
    await reader.ask(
        topics.LOG_APPEND, "<40>1 2026-11-22T00:52:54.698333Z 0 logger 12184 - - hello"
    )
    await reader.ask(topics.LOG_APPEND, "no line of RFC 5424")
    first, second = list(native.log)
    assert (first.level, first.party, first.text) == (Level.NOTICE, "logger", "hello")
    assert (second.party, second.text) == ("reader", "no line of RFC 5424")


async def test_fluxs_cancel_ends_a_stream_regularly(native: LoggingWorld) -> None:
    reader = native.client("reader")
    tag = reader.send(topics.LOG_DMESG, {"follow": True}, streaming=True)
    await trio.testing.wait_all_tasks_blocked()
    cancel = Request(topics.LOG_CANCEL, {"matchtag": tag}, flags=NORESPONSE)
    reader.handle.send(cancel)
    assert (await reader.answer(tag)).errnum == Errno.ENODATA
