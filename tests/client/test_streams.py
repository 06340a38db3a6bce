"""Streams of a client: their ends, leaving them, and a slow reader; under both event loops."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from flux_trio.client import Client, open_client
from flux_trio.client.credit import CREDIT_STREAM_MAX, CREDIT_TOTAL
from flux_trio.client.responses import STREAM_QUEUE_MAX
from flux_trio.messages import Errno, FluxError
from tests.support.small_instance import SmallInstance

Run = Callable[[Callable[[Client], Awaitable[None]]], None]


async def collect(stream: AsyncIterator[Any], into: list[Any]) -> None:
    async for each in stream:
        into.append(each)  # noqa: PERF401 - what came before an error counts


def test_a_stream_is_read_to_its_end(run: Run, instance: SmallInstance) -> None:
    """6.request.4 6.streaming.2 6.streaming.3"""

    async def test(client: Client) -> None:
        async with client.stream("test.count", {"n": 5}) as responses:
            assert [each["index"] async for each in responses] == [0, 1, 2, 3, 4]
        assert client.statistics().streams_open == 0

    run(test)
    assert instance.requests[0].is_streaming


def test_a_stream_that_fails_raises_after_what_came_before(run: Run) -> None:
    """6.streaming.2"""

    async def test(client: Client) -> None:
        came: list[Any] = []
        async with client.stream("test.count-and-fail") as responses:
            with pytest.raises(FluxError, match="no more for you") as caught:
                await collect(responses, came)
        assert came == [{"index": 0}]
        assert caught.value.errnum == Errno.EPERM

    run(test)


def test_a_single_response_is_a_stream_of_one(run: Run) -> None:
    async def test(client: Client) -> None:
        async with client.stream("test.echo", {"n": 1}) as responses:
            assert [each async for each in responses] == [{"n": 1}]

    run(test)


def test_leaving_a_stream_early_cancels_it_at_the_service(
    run: Run, instance: SmallInstance
) -> None:
    """6.cancel.1 6.cancel.2"""

    async def test(client: Client) -> None:
        async with client.stream("test.watch", cancel_topic="test.watch-cancel") as responses:
            assert await anext(responses) == {"index": 0}
        assert await client.call("test.echo", {"n": 1}) == {"n": 1}

    run(test)
    watch, cancel, _ = instance.requests
    assert cancel.topic == "test.watch-cancel"
    assert cancel.payload == {"matchtag": watch.matchtag}
    assert not cancel.wants_response


def test_a_stream_left_by_cancellation_is_cancelled_at_the_service(
    run: Run, instance: SmallInstance
) -> None:
    """6.cancel.1"""

    async def test(client: Client) -> None:
        with anyio.CancelScope() as scope:
            async with client.stream("test.watch", cancel_topic="test.watch-cancel") as responses:
                async for _ in responses:
                    scope.cancel()  # there is one response: the next is waited for
        assert scope.cancelled_caught
        assert client.statistics().streams_open == 0
        assert await client.call("test.echo", {"n": 1}) == {"n": 1}

    run(test)
    assert instance.topics() == ["test.watch", "test.watch-cancel", "test.echo"]


def test_submissions_that_are_given_up_leave_nothing_behind(run: Run) -> None:
    async def test(client: Client) -> None:
        def jobspecs() -> Iterator[dict[str, Any]]:
            for n in range(100_000):
                if n == 2000:
                    scope.cancel()
                yield {"version": 1}

        with anyio.CancelScope() as scope:
            await client.submit_many(jobspecs())
        assert scope.cancelled_caught
        assert client.statistics().calls_waiting == 0
        assert await client.call("test.echo", {"n": 1}) == {"n": 1}

    run(test)


def test_asyncios_own_ways_of_cancelling_do_the_same(instance: SmallInstance) -> None:
    async def main() -> None:
        async with open_client(instance.local_uri) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.call("test.silence")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), client.stream("test.watch") as responses:
                    await collect(responses, [])
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(client.call("test.silence"))
                await client.call("test.echo")
                waiting.cancel()
            assert waiting.cancelled()
            counted = client.statistics()
            assert (counted.calls_waiting, counted.streams_open) == (0, 0)
            assert await client.call("test.echo", {"n": 1}) == {"n": 1}

    asyncio.run(main())


def test_a_stream_that_ended_is_not_cancelled(run: Run, instance: SmallInstance) -> None:
    async def test(client: Client) -> None:
        async with client.stream("test.count", {"n": 0}, cancel_topic="test.x") as responses:
            assert [each async for each in responses] == []

    run(test)
    assert instance.topics() == ["test.count"]


def test_a_slow_reader_holds_up_the_line_and_loses_nothing(run: Run) -> None:
    count = STREAM_QUEUE_MAX + 2000

    async def test(client: Client) -> None:
        async with client.stream("test.count", {"n": count}) as responses:
            await anyio.wait_all_tasks_blocked()
            assert [each["index"] async for each in responses] == list(range(count))

    run(test)


def test_a_call_is_answered_though_a_stream_is_full_and_the_stream_says_so(run: Run) -> None:
    async def test(client: Client) -> None:
        count = STREAM_QUEUE_MAX + 2000
        async with client.stream("test.count", {"n": count}) as responses:
            assert await anext(responses) == {"index": 0}
            assert await client.call("test.echo", {"n": 1}) == {"n": 1}
            came: list[Any] = []
            with pytest.raises(FluxError, match="16384 responses wait to be read") as caught:
                await collect(responses, came)
        assert caught.value.errnum == Errno.EOVERFLOW
        assert len(came) >= STREAM_QUEUE_MAX - 1

    run(test)


def test_a_call_that_comes_while_the_line_is_held_up_is_answered(run: Run) -> None:
    async def test(client: Client) -> None:
        async with client.stream("test.count", {"n": STREAM_QUEUE_MAX + 2000}):
            while client.statistics().messages_received <= STREAM_QUEUE_MAX:
                await anyio.wait_all_tasks_blocked()
            assert await client.call("test.echo", {"n": 1}) == {"n": 1}

    run(test)


def test_a_full_stream_does_not_hold_up_leaving(run: Run) -> None:
    async def test(client: Client) -> None:
        stream = client.stream("test.count", {"n": STREAM_QUEUE_MAX + 2000})
        responses = await stream.__aenter__()
        while client.statistics().messages_received <= STREAM_QUEUE_MAX:
            await anyio.wait_all_tasks_blocked()
        kept.append((stream, responses))

    kept: list[Any] = []
    run(test)
    for _, responses in kept:
        responses.close()


def test_a_reader_with_credit_may_pause_while_calls_go_on(run: Run) -> None:
    count = STREAM_QUEUE_MAX + 2000

    async def test(client: Client) -> None:
        async with client.stream("test.paced", {"n": count}, credit=True) as responses:
            assert await anext(responses) == {"index": 0}
            for n in range(50):  # a pause: more than is on its way would have come by now
                assert await client.call("test.echo", {"n": n}) == {"n": n}
            assert client.statistics().messages_received <= 50 + CREDIT_STREAM_MAX
            assert [each["index"] async for each in responses] == list(range(1, count))
        assert client.statistics().streams_open == 0

    run(test)


def test_streams_share_the_credit_of_their_connection(run: Run, instance: SmallInstance) -> None:
    async def test(client: Client) -> None:
        async with AsyncExitStack() as streams:
            opened = [client.stream("test.paced", {"n": 20}, credit=True) for _ in range(100)]
            many = [await streams.enter_async_context(stream) for stream in opened]
            assert await client.call("test.echo", {"n": 1}) == {"n": 1}
            assert client.statistics().messages_received <= CREDIT_TOTAL + 100
            for responses in many:
                assert [each["index"] async for each in responses] == list(range(20))
        async with client.stream("test.paced", {"n": 0}, credit=True):
            pass

    run(test)
    asked = [each.payload for each in instance.requests if each.topic == "test.paced"]
    windows = [payload["credit"] for payload in asked if isinstance(payload, dict)]
    assert windows[0] == CREDIT_STREAM_MAX
    assert windows[99] == 1
    assert windows[100] == CREDIT_STREAM_MAX  # all of it was given back
