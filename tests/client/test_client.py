"""The client against a real WebSocket, under both of its event loops."""

import asyncio
import gc
import itertools
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from flux_trio._version import __version__
from flux_trio.client import (
    AccessDenied,
    Client,
    ClientError,
    ConnectionLost,
    MissingKey,
    NoInstance,
    open_client,
)
from flux_trio.messages import Errno, FluxError, LocalProtocolError, topics
from flux_trio.protocols import JobFlag
from tests.support.small_instance import OLD_INFO, TOKEN, SmallInstance

Run = Callable[[Callable[[Client], Awaitable[None]]], None]


def test_a_call_returns_the_payload_of_its_response(run: Run) -> None:
    """6.request.1 6.response.1 6.response.2"""

    async def test(client: Client) -> None:
        assert await client.call("test.echo", {"id": 2**63 + 1}) == {"id": 2**63 + 1}
        assert await client.call("test.echo") == {}

    run(test)


def test_a_key_that_an_older_instance_does_not_send_is_named(run: Run) -> None:
    async def test(client: Client) -> None:
        info = await client.call(topics.BROKER_INFO)
        assert info == OLD_INFO
        assert (info["level"], info.get("requester"), "requester" in info) == (0, None, False)
        assert json.loads(msgspec.json.encode(info)) == json.loads(json.dumps(info)) == OLD_INFO
        with pytest.raises(MissingKey) as caught:
            info["requester"]
        said = str(caught.value)
        assert said.startswith(
            "broker.info: expected the key requester, got level, version; if the instance at "
        )
        assert said.endswith(
            f" is older than this program, which has version {__version__}, restart it"
        )
        assert isinstance(caught.value, ClientError)
        with pytest.raises(MissingKey, match=r"test\.echo: expected the key id, got no keys; "):
            (await client.call("test.echo"))["id"]
        async with client.stream("test.count", {"n": 1}) as counted:
            async for each in counted:
                with pytest.raises(MissingKey, match=r"test\.count: .* key n, got index; "):
                    each["n"]

    run(test)


def test_a_failure_raises_its_errnum_and_text(run: Run) -> None:
    """6.response.3"""

    async def test(client: Client) -> None:
        with pytest.raises(FluxError, match=r"no method test\.nothing") as caught:
            await client.call("test.nothing")
        assert caught.value.errnum == Errno.ENOSYS

    run(test)


def test_calls_of_many_tasks_get_each_its_own_answer(run: Run) -> None:
    """6.matchtag.1 6.matchtag.4"""

    async def test(client: Client) -> None:
        answers: list[dict[str, Any]] = []

        async def ask(n: int) -> None:
            answers.append(await client.call("test.echo", {"n": n}))

        async with anyio.create_task_group() as tasks:
            for n in range(200):
                tasks.start_soon(ask, n)
        assert sorted(answer["n"] for answer in answers) == list(range(200))

    run(test)


def test_no_response_is_asked_for_where_none_is_wanted(run: Run, instance: SmallInstance) -> None:
    """6.request.5 6.matchtag.3"""

    async def test(client: Client) -> None:
        assert await client.call("test.echo", {"n": 1}, noresponse=True) == {}

    run(test)
    assert [(each.wants_response, each.matchtag) for each in instance.requests] == [(False, 0)]


def test_a_call_that_is_given_up_leaves_nothing_behind(run: Run) -> None:
    async def test(client: Client) -> None:
        with anyio.move_on_after(0.01):
            await client.call("test.silence")
        assert client.statistics().calls_waiting == 0
        assert await client.call("test.echo", {"n": 1}) == {"n": 1}

    run(test)


def test_a_payload_that_cannot_travel_is_the_callers_error(run: Run) -> None:
    async def test(client: Client) -> None:
        with pytest.raises(LocalProtocolError, match=r"payload\.x: expected a map"):
            await client.call("test.echo", {"x": {1, 2}})
        assert client.statistics().calls_waiting == 0
        assert await client.call("test.echo", {"n": 1}) == {"n": 1}

    run(test)


def test_events_that_match_are_received_in_order(run: Run, instance: SmallInstance) -> None:
    """3.routing.5"""

    async def test(client: Client) -> None:
        async with client.subscribe("job-*") as some, client.subscribe("*") as every:
            await client.call("test.publish", {"topics": ["job-state", "pulse", "job-exception"]})
            first = await anext(some)
            assert (first.topic, first.payload, first.sequence) == (
                "job-state", {"name": "job-state"}, 0,
            )  # fmt: skip
            assert (await anext(some)).topic == "job-exception"
            assert [(await anext(every)).topic for _ in range(3)] == [
                "job-state", "pulse", "job-exception",
            ]  # fmt: skip
        await client.call("test.publish", {"topics": ["job-late"]})

    run(test)
    subscribed = [each for each in instance.requests if each.topic == "broker.subscribe"]
    left = [each for each in instance.requests if each.topic == "broker.unsubscribe"]
    assert [each.payload for each in subscribed] == [{"topic": "job-*"}, {"topic": "*"}]
    assert [each.payload for each in left] == [{"topic": "*"}, {"topic": "job-*"}]


def test_a_subscription_that_is_refused_is_not_taken_back(
    run: Run, instance: SmallInstance
) -> None:
    "An unsubscribe would end another subscription to the same pattern."

    async def test(client: Client) -> None:
        with pytest.raises(FluxError, match="no more for you"):
            async with client.subscribe("one-too-many"):
                pytest.fail("entered")

    run(test)
    assert instance.topics() == [topics.BROKER_SUBSCRIBE]


def test_jobs_are_submitted_one_by_one_and_many_at_a_time(
    run: Run, instance: SmallInstance
) -> None:
    async def test(client: Client) -> None:
        first = (await client.submit({"version": 1}, urgency=3, flags=1)).id
        ids = await client.submit_many([{"version": 1}] * 3000)
        assert ids == list(range(first + 1, first + 3001))
        with pytest.raises(FluxError, match="no such queue"):
            await client.submit({"bad": "no such queue"})
        mixed = await client.submit_many([{"bad": "no"}, {"version": 1}])
        assert isinstance(mixed[0], FluxError)
        assert (mixed[0].errnum, mixed[0].text) == (Errno.EINVAL, "no")
        assert mixed[1] == first + 3001
        assert client.statistics().calls_waiting == 0

    run(test)
    assert instance.topics()[0] == topics.BROKER_INFO  # which edition has which numbers of flags
    assert instance.requests[1].payload == {"jobspec": {"version": 1}, "urgency": 3, "flags": 1}


def test_flags_have_the_numbers_of_the_instances_edition(
    run: Run, instance: SmallInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "info", {**OLD_INFO, "edition": "current"})

    async def test(client: Client) -> None:
        for flag in JobFlag:
            await client.submit({"version": 1}, flags=flag)

    run(test)
    submitted = [each.payload for each in instance.requests if each.topic == topics.INGEST_SUBMIT]
    flags = [payload["flags"] for payload in submitted if isinstance(payload, dict)]
    assert flags == [2, 4, 8]


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("test.hang-up", r"the instance ended the connection \(1000\): that is enough"),
        ("test.break", "the instance sent an invalid message: frame: in the item at byte 0"),
        ("test.say-text", "the instance sent text where a binary frame was expected"),
    ],
)
def test_a_lost_connection_fails_all_that_wait(run: Run, topic: str, text: str) -> None:
    async def test(client: Client) -> None:
        async def expect_loss() -> None:
            with pytest.raises(ConnectionLost, match=text):
                await client.call("test.silence")

        async with client.stream("test.watch", cancel_topic="test.watch-cancel") as responses:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(expect_loss)
                tasks.start_soon(expect_loss)
                await anext(responses)
                await client.call(topic, noresponse=True)
            with pytest.raises(ConnectionLost, match=text):
                await anext(responses)
        with pytest.raises(ConnectionLost, match=text):
            await client.call("test.echo")

    run(test)


def test_a_ping_of_the_instance_is_answered(run: Run) -> None:
    async def test(client: Client) -> None:
        assert await client.call("test.ping") == {}

    run(test)


def test_what_was_sent_before_leaving_arrives(run: Run, instance: SmallInstance) -> None:
    async def test(client: Client) -> None:
        for n in range(3000):
            await client.call("test.echo", {"n": n, "more": "x" * 2000}, noresponse=True)

    run(test)
    until = time.monotonic() + 300
    while len(instance.requests) < 3000 and time.monotonic() < until:
        time.sleep(0.001)
    assert len(instance.requests) == 3000


def test_an_error_in_the_block_comes_out_as_it_is(run: Run) -> None:
    async def test(client: Client) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(test)


def test_a_client_that_is_closed_says_so(run: Run) -> None:
    kept: list[Client] = []

    async def test(client: Client) -> None:
        kept.append(client)

    run(test)

    async def late() -> None:
        with pytest.raises(ConnectionLost, match="this client is closed"):
            await kept[0].call("test.echo")

    anyio.run(late)


def test_statistics_count_what_went_over_the_line(run: Run) -> None:
    async def test(client: Client) -> None:
        await client.call("test.echo")
        await client.call("test.echo")
        counted = client.statistics()
        assert (counted.messages_sent, counted.messages_received) == (2, 2)
        assert counted.bytes_sent > 100
        assert counted.bytes_received > 100

    run(test)


def test_a_token_the_instance_does_not_know_is_denied(
    instance: SmallInstance, backend: str
) -> None:
    async def main() -> None:
        async with open_client(instance.uri, "open"):
            pass

    with pytest.raises(AccessDenied, match=r"refused the connection \(403: this instance does"):
        anyio.run(main, backend=backend)


def test_a_user_without_access_is_denied(instance: SmallInstance, backend: str) -> None:
    async def main() -> None:
        async with open_client(instance.local_uri):
            pass

    instance.known_users = False
    try:
        with pytest.raises(AccessDenied, match=r"\(403: user \d+ has no access to this instance"):
            anyio.run(main, backend=backend)
    finally:
        instance.known_users = True


def test_a_socket_that_may_not_be_used_is_another_users(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    async def main() -> None:
        async with open_client("unix:///run/x"):
            pass

    monkeypatch.setattr(anyio, "connect_unix", refuse)  # root may use any
    with pytest.raises(AccessDenied, match="unix:///run/x may not be used: it is another user's"):
        anyio.run(main, backend=backend)


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("unix:///no/such", "nobody listens at unix:///no/such: .* `flux-trio start`"),
        ("ws://127.0.0.1:1", "nobody listens at ws://127.0.0.1:1: .* `flux-trio start`"),
        ("ssh://somewhere", "expected ws://HOST:PORT"),
    ],
)
def test_where_no_instance_listens_the_error_says_so(backend: str, uri: str, text: str) -> None:
    async def main() -> None:
        async with open_client(uri, "open"):
            pass

    with pytest.raises(NoInstance, match=text):
        anyio.run(main, backend=backend)


def test_what_listens_and_speaks_no_websocket_is_told_from_an_instance(backend: str) -> None:
    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"220 mail ready\r\n\r\n")

    async def main() -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, answer)
            with pytest.raises(ConnectionLost, match="the instance does not speak WebSocket"):
                async with open_client(f"ws://127.0.0.1:{port}", "open"):
                    pass
            tasks.cancel_scope.cancel()

    anyio.run(main, backend=backend)


class _CancelledAt(asyncio.SelectorEventLoop):
    """Cancels `main` in its turn of that number."""

    def __init__(self, turn: int) -> None:
        super().__init__()
        self._left = turn
        self.main: asyncio.Task[None]

    def _run_once(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.main.cancel()
        super()._run_once()  # type: ignore[misc]


def test_a_program_of_asyncio_may_be_cancelled_in_any_turn(instance: SmallInstance) -> None:
    "What it leaves open is a ResourceWarning, which fails this test."

    async def main() -> None:
        async with open_client(instance.uri, TOKEN) as client:
            await client.call("test.echo")

    for turn in itertools.count(1):
        with closing(_CancelledAt(turn)) as loop:
            loop.main = loop.create_task(main())
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(loop.main)
            assert asyncio.all_tasks(loop) == set()
            is_over = not loop.main.cancelled()
        gc.collect()
        if is_over:
            break
    assert turn > 10
