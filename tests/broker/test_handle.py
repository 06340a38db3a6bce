"""What a module holds of the broker: calls, streams, its inbox, its end."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from flux_trio.broker import Handle
from flux_trio.broker.router import BATCH_MAX
from flux_trio.messages import Errno, Event, Flag, FluxError, Request, Response, respond_stream
from flux_trio.trace import Kind
from tests.support.modules import ModuleWorld, echo, listener, send


@pytest.fixture
async def world(nursery: trio.Nursery) -> ModuleWorld:
    world = ModuleWorld(nursery)
    await world.load("echo", echo)
    return world


@pytest.fixture
def client(world: ModuleWorld) -> Handle:
    return world.handle("client")


# --- call


async def test_call_returns_the_payload_of_the_answer(client: Handle) -> None:
    assert await client.call("echo.back", {"a": 1}) == {"a": 1}
    assert await client.call("echo.back") == {}


async def test_error_response_is_raised_with_its_errnum_and_text(client: Handle) -> None:
    "6.response.3"
    with pytest.raises(FluxError) as error:
        await client.call("echo.refuse")
    assert (error.value.errnum, error.value.text) == (22, "not today")


async def test_end_of_stream_is_no_answer_to_a_call(world: ModuleWorld, client: Handle) -> None:
    async def empty(handle: Handle, *, task_status: trio.TaskStatus[None]) -> None:
        handle.register("empty")
        task_status.started()
        (request,) = await handle.receive()
        send(
            handle,
            Response(request.topic, None, Errno.ENODATA, request.matchtag, routes=("client",)),
        )
        await trio.sleep_forever()

    await world.load("empty", empty)
    with pytest.raises(FluxError, match=r"empty\.list: answered ENODATA"):
        await client.call("empty.list")


async def test_answers_to_calls_go_past_the_inbox(client: Handle) -> None:
    received: list[Any] = []

    async def receive() -> None:
        received.extend(await client.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        assert await client.call("echo.back", {"a": 1}) == {"a": 1}
        assert received == []
        client.post("mine")
    assert received == ["mine"]


async def test_late_answer_to_a_cancelled_call_is_dropped_and_traced(
    world: ModuleWorld, client: Handle, autojump_clock: MockClock
) -> None:
    heard: list[Request] = []
    await world.load("slow", listener("slow", heard))
    with trio.move_on_after(1) as scope:
        await client.call("slow.think")
    assert scope.cancelled_caught
    (request,) = heard
    late = Response(request.topic, None, 0, request.matchtag, routes=request.routes)
    world.router.route(world.router.peers["slow"], late)
    assert client.waiting() == 0
    assert [drop.data for drop in world.drops()] == [{"reason": "the caller has left"}]


async def test_service_that_vanishes_under_a_call_is_an_error(
    world: ModuleWorld, client: Handle
) -> None:
    "readings: ENOSYS"
    with pytest.raises(FluxError, match="echo ended: ZeroDivisionError: as asked") as error:
        await client.call("echo.crash")
    assert error.value.errnum == Errno.ENOSYS


# --- stream


async def test_stream_ends_with_an_answer_that_is_not_of_a_stream(client: Handle) -> None:
    "6.matchtag.4: a response without the streaming flag is the last."
    async with client.stream("echo.back", {"n": 7}) as responses:
        assert [response["n"] async for response in responses] == [7]


async def test_stream_requests_have_the_streaming_flag_and_calls_have_not(
    world: ModuleWorld, client: Handle
) -> None:
    "6.request.4, 6.streaming.3: and ENODATA ends a stream."
    await client.call("echo.back")
    async with client.stream("echo.count") as responses:
        assert [response["n"] async for response in responses] == [0, 1, 2]
    sent = [
        record.message.flags
        for record in world.records
        if record.kind == Kind.SEND and isinstance(record.message, Request)
    ]
    assert sent == [0, int(Flag.STREAMING)]


async def test_error_in_a_stream_is_raised_after_what_came_before_it(
    world: ModuleWorld, client: Handle
) -> None:
    "6.streaming.2; a service that vanishes ends its streams with ENOSYS."
    received: list[Any] = []

    async def follow() -> None:
        async with client.stream("echo.open") as responses:
            async for response in responses:
                received.append(response)
                client.send(Request("echo.crash", flags=int(Flag.NORESPONSE)))

    with pytest.raises(FluxError, match="echo ended: ZeroDivisionError: as asked") as error:
        await follow()
    assert received == [{"n": 0}]
    assert error.value.errnum == Errno.ENOSYS


async def test_stream_can_be_left_early_and_what_still_comes_is_dropped(
    world: ModuleWorld, client: Handle
) -> None:
    heard: list[Request] = []
    await world.load("slow", listener("slow", heard))
    async with client.stream("slow.watch"):
        await trio.testing.wait_all_tasks_blocked()
    (request,) = heard
    slow = world.router.peers["slow"]
    for answer in (respond_stream(request, {"n": 0}), respond_stream(request, {"n": 1})):
        assert answer is not None
        world.router.route(slow, answer)
    world.router.route(
        slow, Response(request.topic, None, 61, request.matchtag, routes=("client",))
    )
    assert client.waiting() == 0
    assert len(world.drops()) == 3
    world.router.route(
        slow, Response(request.topic, None, 61, request.matchtag, routes=("client",))
    )
    assert client.waiting() == 0, "after its end nothing more comes through"
    assert len(world.drops()) == 4


async def test_stream_left_at_its_end_leaves_nothing_behind(
    world: ModuleWorld, client: Handle
) -> None:
    for _ in range(3):
        async with client.stream("echo.count") as responses:
            async for response in responses:
                if response["n"] == 2:
                    break
    assert await client.call("echo.back", {"still": "well"}) == {"still": "well"}
    assert client.waiting() == 0


# --- the inbox


async def test_messages_and_posted_values_are_received_in_order(
    world: ModuleWorld, client: Handle
) -> None:
    "3.routing.5"
    client.subscribe("job-*")
    sender = world.handle("sender")
    sender.send(Event("job-state", {"n": 1}))
    client.post("between")
    sender.send(Event("other", {}))
    sender.send(Event("job-exception", {"n": 2}))
    assert client.waiting() == 3
    first, between, last = await client.receive()
    assert (first.topic, between, last.topic) == ("job-state", "between", "job-exception")


async def test_receive_until_gives_nothing_when_its_time_comes_first(
    world: ModuleWorld, client: Handle, autojump_clock: MockClock
) -> None:
    assert await client.receive_until(1030.0) == []
    assert world.now() == 1030.0
    assert await client.receive_until(1010.0) == []
    client.post("waits")
    assert await client.receive_until(1010.0) == ["waits"]
    assert world.now() == 1030.0


async def test_receipt_is_traced_with_the_place_of_its_send(
    world: ModuleWorld, client: Handle
) -> None:
    await client.call("echo.back")
    sent, taken, answered, received = [r for r in world.records if r.kind != Kind.MODULE]
    assert [sent.kind, taken.kind, answered.kind, received.kind] == ["send", "recv", "send", "recv"]
    assert (taken.ref, received.ref) == (sent.n, answered.n)
    assert (sent.party, taken.party, received.party) == ("client", "echo", "client")


# --- the end


async def test_closed_handle_is_gone_and_those_it_kept_waiting_are_answered(
    world: ModuleWorld, client: Handle
) -> None:
    "readings: ENOSYS. Requests not yet delivered are answered whatever their matchtag."
    server = world.handle("server")
    server.register("deaf")
    server.post("a value is nobody's message")
    client.send(Request("deaf.listen", None, 0))
    client.send(Request("deaf.listen", None, 7, int(Flag.NORESPONSE)))
    server.close()
    (answer,) = await client.receive()
    assert (answer.errnum, answer.matchtag) == (Errno.ENOSYS, 0)
    (drop,) = world.drops()  # the one that wants no response
    assert drop.message.matchtag == 7
    server.close()
    assert "server" not in world.router.peers


async def test_name_of_a_peer_is_taken_while_it_is_there(
    world: ModuleWorld, client: Handle
) -> None:
    with pytest.raises(FluxError, match="a peer named client is already connected"):
        world.handle("client")
    client.close()
    world.handle("client")


async def test_log_lines_bear_the_name_of_who_wrote_them(
    world: ModuleWorld, client: Handle
) -> None:
    client.log(4, "careful")
    (entry,) = world.log
    assert str(entry) == "client.warning: careful"


async def test_peer_beside_a_module_has_calls_of_its_own(world: ModuleWorld) -> None:
    "6.matchtag.4: a core numbers its requests itself, and from 1 as well."
    module = world.handle("module")
    with module.beside("helper") as helper:
        module.send(Request("echo.back", {"of": "core"}, 1))
        assert await helper.call("echo.back", {"of": "helper"}) == {"of": "helper"}
        (answer,) = await module.receive()
        assert (answer.matchtag, answer.payload) == (1, {"of": "core"})
    assert helper.name not in world.router.peers


# --- batches


async def test_module_receives_no_more_than_a_batch_at_a_time(client: Handle) -> None:
    for value in range(2 * BATCH_MAX + 1):
        client.post(value)
    assert await client.receive() == list(range(BATCH_MAX))
    assert await client.receive_for(1.0) == list(range(BATCH_MAX, 2 * BATCH_MAX))
    assert await client.receive() == [2 * BATCH_MAX]
