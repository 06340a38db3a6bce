"""module.trace: what modules send and receive, told as it happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from flux_trio.broker import Handle
from flux_trio.broker.tracing import QUEUE_BYTES_MAX, QUEUE_MAX
from flux_trio.messages import Errno, FluxError, Request
from flux_trio.trace import Kind, Record, record_from_json, record_to_json
from tests.support.modules import ModuleWorld, echo, listener

Stream = AsyncIterator[dict[str, Any]]


class TracedWorld(ModuleWorld):
    @asynccontextmanager
    async def traced(self, **wanted: Any) -> AsyncIterator[Stream]:
        """A stream that sees what comes from here on."""
        async with self.handle("looker").stream("module.trace", wanted) as stream:
            await trio.testing.wait_all_tasks_blocked()
            yield stream


@pytest.fixture
async def world(nursery: trio.Nursery) -> TracedWorld:
    world = TracedWorld(nursery)
    await world.serve_broker()
    await world.load("echo", echo)
    return world


async def take(stream: Stream, count: int) -> list[dict[str, Any]]:
    return [await anext(stream) for _ in range(count)]


async def test_what_a_module_receives_and_sends_is_told(world: TracedWorld) -> None:
    async with world.traced() as stream:
        await world.client().ask("echo.back", {"a": 1})
        received, sent = await take(stream, 2)
    base = {"name": "echo", "topic": "echo.back", "payload_size": 7}
    assert received == {
        **base, "timestamp": received["timestamp"], "prefix": "rx", "type": "request",
    }  # fmt: skip
    assert sent == {
        **base, "timestamp": sent["timestamp"], "prefix": "tx", "type": "response",
        "errnum": 0, "errstr": "",
    }  # fmt: skip
    assert 1000 <= received["timestamp"] <= sent["timestamp"] <= world.now()


async def test_payloads_come_when_asked_for_and_errors_have_their_text(world: TracedWorld) -> None:
    async with world.traced(full=True) as stream:
        client = world.client()
        await client.ask("echo.back", {"a": 1})
        with pytest.raises(FluxError):
            await client.ask("echo.refuse")
        request, response, _, refusal = await take(stream, 4)
    assert request["payload"] == response["payload"] == {"a": 1}
    assert (refusal["errnum"], refusal["errstr"]) == (22, "not today")
    assert "payload" not in refusal


async def test_names_and_topics_choose(world: TracedWorld) -> None:
    await world.load("other", listener("other", []))
    async with world.traced(names=["other"], topic_glob="*.ba*") as stream:
        client = world.client()
        for topic in ("echo.back", "other.count", "other.back"):
            client.send(topic)
        (told,) = await take(stream, 1)
    assert (told["name"], told["topic"]) == ("other", "other.back")


async def test_trace_does_not_tell_of_itself(world: TracedWorld) -> None:
    async with world.traced(names=["broker"]) as stream:
        await world.client().ask("module.list")
        assert [each["topic"] for each in await take(stream, 2)] == ["module.list"] * 2
        with trio.move_on_after(0.01) as scope:
            await anext(stream)
        assert scope.cancelled_caught


async def test_records_are_counted_in_bytes(world: TracedWorld) -> None:
    """A record of fewer characters than QUEUE_BYTES_MAX, and of more bytes, does not fit."""
    async with world.traced(records=True) as stream:
        client = world.handle("client")
        client.send(Request("echo.nothing", {"text": "é" * (QUEUE_BYTES_MAX // 2)}))
        first = await anext(stream)
    assert set(first) == {"lost"}


async def test_what_does_not_fit_is_counted(world: TracedWorld) -> None:
    async def loud(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        """Send more in a turn than fits."""
        handle.register("loud")
        task_status.started()
        await handle.receive()
        for _ in range(QUEUE_MAX + 5):
            handle.send(Request("echo.nothing"))
        await handle.receive()

    await world.load("loud", loud)
    async with world.traced(names=["loud"], topic_glob="echo.*") as stream:
        world.handle("client").send(Request("loud.now"))
        told = await take(stream, QUEUE_MAX + 1)
    assert [each["topic"] for each in told[:-1]] == ["echo.nothing"] * QUEUE_MAX
    assert told[-1] == {"lost": 5}


async def test_stream_ends_when_canceled_or_when_its_reader_is_gone(world: TracedWorld) -> None:
    sinks = len(world.router.trace._sinks)
    client = world.client()
    tag = client.send("module.trace", {}, streaming=True)
    await client.ask("module.trace-cancel", {"matchtag": tag})
    assert (await client.answer(tag)).errnum == Errno.ECANCELED
    with pytest.raises(FluxError) as unknown:
        await client.ask("module.trace-cancel", {"matchtag": tag})
    assert unknown.value.errnum == Errno.ENOENT
    client.send("module.trace", {}, streaming=True)
    await trio.testing.wait_all_tasks_blocked()
    assert len(world.router.trace._sinks) == sinks + 1
    client.handle.close()
    await trio.testing.wait_all_tasks_blocked()
    assert len(world.router.trace._sinks) == sinks


async def test_guests_see_nothing(world: TracedWorld) -> None:
    with pytest.raises(FluxError) as refused:
        await world.guest().call("module.trace", {})
    assert refused.value.errnum == Errno.EPERM


async def test_stream_needs_the_streaming_flag(world: TracedWorld) -> None:
    with pytest.raises(FluxError) as refused:
        await world.client().ask("module.trace", {})
    assert refused.value.errnum == Errno.EPROTO


async def test_whole_records_are_those_of_the_trace(world: TracedWorld) -> None:
    """Every kind and every party, but not the stream's own messages."""
    sink: list[Record] = []
    async with world.traced(records=True, names=["nobody"], topic_glob="none") as stream:
        world.router.trace.add_sink(sink.append)
        client = world.client()
        await client.ask("echo.back", {"a": 1})
        world.router.trace.note(Kind.CLOCK, "broker", {"by": 3.0})
        await trio.testing.wait_all_tasks_blocked()
        world.router.trace.remove_sink(sink.append)
        expected = [each for each in sink if not is_of_tracing(each)]
        told = [record_from_json(each["record"]) for each in await take(stream, len(expected))]
    assert told == [record_from_json(record_to_json(each)) for each in expected]
    assert {each.kind for each in told} == {"send", "recv", "clock"}
    assert {"echo", "broker"} < {each.party for each in told}


def is_of_tracing(record: Record) -> bool:
    return getattr(record.message, "topic", "").startswith("module.trace")


async def test_whole_records_that_do_not_fit_or_have_no_json_are_counted(
    world: TracedWorld,
) -> None:
    async with world.traced(records=True) as stream:
        world.router.trace.note(Kind.STATE, "echo", {"value": object()})
        assert await take(stream, 1) == [{"lost": 1}]
        for _ in range(QUEUE_MAX + 3):
            world.router.trace.note(Kind.STATE, "echo", {})
        told = await take(stream, QUEUE_MAX + 1)
    assert told[-1] == {"lost": 3}
    assert all(each.keys() == {"record"} for each in told[:-1])


async def test_flux_reads_numbers_of_types_and_says_which_it_wants(world: TracedWorld) -> None:
    async with world.traced(typemask=1, topic_glob="*", names=["echo"], full=False) as stream:
        client = world.client()
        await client.ask("echo.back", {"a": 1})
        (received,) = await take(stream, 1)
        await client.ask("echo.back", {"a": 2})
        (second,) = await take(stream, 1)
    assert (received["type"], received["prefix"], received["rank"]) == (1, "rx", -1)
    assert (received["errnum"], received["errstr"]) == (0, "")
    assert second["type"] == 1  # the response between them is not wanted
