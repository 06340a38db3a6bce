"""Clients of the native door, over memory and over its socket: stacks, users, services, events."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from flux_trio.broker import Handle, NativeShared, connections, serve_native_connection
from flux_trio.broker.native import CHILDREN_MAX
from flux_trio.broker.native_credit import WATCH_CREDIT
from flux_trio.messages import (
    ROLE_LOCAL,
    ROLE_OWNER,
    ROLE_USER,
    Errno,
    Event,
    Message,
    Request,
    end_of_stream,
    respond,
    respond_stream,
    topics,
)
from flux_trio.messages.types import NORESPONSE, STREAMING
from flux_trio.trace import Kind, Record
from flux_trio.transports import Connection, Credentials, memory_pair, serve_native
from flux_trio.transports.base import BEHIND_MESSAGES
from flux_trio.transports.native import connect_native
from tests.support.asking import GUEST_USERID
from tests.support.modules import ModuleWorld, echo

OWNER = Credentials(100, ROLE_OWNER | ROLE_LOCAL, "owner")
GUEST = Credentials(GUEST_USERID, ROLE_USER | ROLE_LOCAL, "ann")
SIZE = 4


class Door(ModuleWorld):
    """A broker with a native door."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self.nursery = nursery
        self.shared = NativeShared(self.router, self.write_log, SIZE)
        self.heard: list[Request] = []

    async def serve(self, connection: Connection, credentials: Credentials = OWNER) -> None:
        await serve_native_connection(
            self.router, self.write_log, connection, credentials, self.shared
        )

    async def connect(self, credentials: Credentials = OWNER) -> Client:
        ours, theirs = memory_pair()
        self.nursery.start_soon(self.serve, ours, credentials)
        await trio.testing.wait_all_tasks_blocked()
        return Client(theirs)

    async def stream(
        self, handle: Handle, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """A module that answers each request once, and ends it by a cancel or a disconnect."""
        handle.register("stream")
        task_status.started()
        open_streams: dict[tuple[str, int], Request] = {}
        while True:
            for request in await handle.receive():
                assert isinstance(request, Request)
                self.heard.append(request)
                if request.topic == "stream.open":
                    open_streams[request.sender, request.matchtag] = request
                    handle.answer(respond_stream(request, {"by": request.userid}))
                elif request.topic == "stream.open-cancel":
                    assert isinstance(request.payload, dict)
                    found = open_streams.pop((request.sender, request.payload["matchtag"]), None)
                    if found is not None:
                        handle.answer(end_of_stream(found))


class Client:
    """The other end of a connection: asks, and waits for what comes."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._came: list[Message] = []

    def ask(self, topic: str, payload: Any = None, matchtag: int = 1, **header: Any) -> None:
        self.connection.send_nowait(Request(topic, payload, matchtag, **header))

    async def come(self) -> Any:
        if not self._came:
            self._came = await self.connection.receive()
        return self._came.pop(0)

    async def quiet(self) -> None:
        """Wait until everything is done, and expect no message."""
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0):
            self._came += await self.connection.receive()
        assert self._came == []


@pytest.fixture
async def door(nursery: trio.Nursery) -> Door:
    door = Door(nursery)
    await door.load("echo", echo)
    await door.load("stream", door.stream)
    return door


async def test_an_answer_has_the_empty_stack_of_its_request(door: Door) -> None:
    client = await door.connect()
    client.ask("echo.back", {"n": 1}, 7)
    answer = await client.come()
    assert (answer.payload["n"], answer.matchtag, answer.routes) == (1, 7, ())


async def test_children_of_a_router_use_one_matchtag_at_once(door: Door) -> None:
    proxy = await door.connect()
    for child in ("a", "b"):
        proxy.ask("stream.open", {}, 5, flags=STREAMING, routes=("proxy", child))
    first, second = await proxy.come(), await proxy.come()
    assert {first.routes, second.routes} == {("proxy", "a"), ("proxy", "b")}
    senders = {each.sender for each in door.heard}
    assert len(senders) == 2

    # One is cancelled; the other goes on, and its end has the flag of its stream.
    proxy.ask("stream.open-cancel", {"matchtag": 5}, 0, flags=NORESPONSE, routes=("proxy", "a"))
    end = await proxy.come()
    assert (end.routes, end.errnum, end.flags) == (("proxy", "a"), Errno.ENODATA, STREAMING)
    await proxy.quiet()


async def test_a_child_that_disconnects_is_gone_and_its_sibling_goes_on(door: Door) -> None:
    proxy = await door.connect()
    for child in ("a", "b"):
        proxy.ask("stream.open", {}, 5, flags=STREAMING, routes=(child,))
        await proxy.come()
    gone, stays = (each.sender for each in door.heard)
    proxy.ask("stream.disconnect", None, 5, flags=NORESPONSE, routes=("a",))
    await proxy.quiet()
    assert [(each.topic, each.sender) for each in door.heard[2:]] == [("stream.disconnect", gone)]
    assert gone not in door.router.peers
    assert stays in door.router.peers


async def test_a_child_without_an_open_call_lives_until_its_disconnect(door: Door) -> None:
    proxy = await door.connect()
    proxy.ask("echo.back", {"n": 1}, routes=("a",))
    await proxy.come()
    npeers = len(door.router.peers)
    proxy.ask("echo.disconnect", None, flags=NORESPONSE, routes=("a",))
    await proxy.quiet()
    assert len(door.router.peers) == npeers - 1


async def test_a_service_hears_of_a_client_once_for_all_its_prefixes(door: Door) -> None:
    proxy = await door.connect()
    proxy.ask("stream.open", {}, 1, flags=STREAMING, routes=("a",))
    proxy.ask("stream.history.get", {}, 2, routes=("a",))
    await proxy.come()
    await trio.testing.wait_all_tasks_blocked()
    for topic in ("stream.history.disconnect", "stream.disconnect", "stream.disconnect"):
        proxy.ask(topic, None, flags=NORESPONSE, routes=("a",))
    await proxy.quiet()
    assert [each.topic for each in door.heard[2:]] == ["stream.disconnect"]


async def test_when_the_connection_ends_all_its_peers_end(door: Door) -> None:
    npeers = len(door.router.peers)
    proxy = await door.connect()
    for child in ((), ("a",), ("b",)):
        proxy.ask("stream.open", {}, 5, flags=STREAMING, routes=child)
        await proxy.come()
    await proxy.connection.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert len(door.router.peers) == npeers
    assert sorted(each.topic for each in door.heard[3:]) == ["stream.disconnect"] * 3


async def test_the_owner_speaks_for_another_user_and_a_guest_does_not(door: Door) -> None:
    owner = await door.connect()
    owner.ask("stream.open", {}, 1, flags=STREAMING, userid=42, rolemask=ROLE_USER)
    assert (await owner.come()).payload == {"by": 42}
    assert door.heard[-1].rolemask == ROLE_USER | ROLE_LOCAL
    guest = await door.connect(GUEST)
    guest.ask("stream.open", {}, 1, flags=STREAMING, userid=42, rolemask=ROLE_OWNER)
    assert (await guest.come()).payload == {"by": GUEST_USERID}
    assert door.heard[-1].rolemask == GUEST.rolemask


async def test_the_owner_cancels_what_was_asked_for_another_user(door: Door) -> None:
    owner = await door.connect()
    owner.ask("stream.open", {}, 3, flags=STREAMING, userid=42, rolemask=ROLE_USER)
    await owner.come()
    owner.ask("stream.open-cancel", {"matchtag": 3}, 0, flags=NORESPONSE)
    assert (await owner.come()).errnum == Errno.ENODATA


async def test_too_many_children_are_refused_until_one_is_over(door: Door) -> None:
    proxy = await door.connect()
    for child in range(CHILDREN_MAX):
        proxy.ask("echo.back", {"n": child}, routes=(f"c{child}",))
        await proxy.come()
    proxy.ask("echo.back", {"n": 0}, routes=("one more",))
    refused = await proxy.come()
    assert (refused.errnum, refused.routes) == (Errno.EAGAIN, ("one more",))
    assert refused.payload == ("1024 clients behind this connection are open: wait for one to end")
    proxy.ask("echo.disconnect", None, flags=NORESPONSE, routes=("c0",))
    proxy.ask("echo.back", {"n": 0}, routes=("one more",))
    assert (await proxy.come()).errnum == 0


async def test_a_client_holds_a_service_and_answers_by_the_route_it_got(door: Door) -> None:
    server, client = await door.connect(), await door.connect()
    server.ask("service.add", {"service": "mine"})
    assert (await server.come()).errnum == 0
    client.ask("mine.do", {"n": 1}, 9, routes=("proxy", "child"))
    request = await server.come()
    assert (request.topic, request.userid) == ("mine.do", OWNER.userid)
    answer = respond(request, {"n": 2})
    assert answer is not None
    server.connection.send_nowait(answer)
    got = await client.come()
    assert (got.payload, got.matchtag, got.routes) == ({"n": 2}, 9, ("proxy", "child"))
    await server.connection.aclose()
    await trio.testing.wait_all_tasks_blocked()
    client.ask("mine.do", {}, 10)
    assert (await client.come()).errnum == Errno.ENOSYS


@pytest.mark.parametrize(
    ("credentials", "service", "errnum", "text"),
    [
        (OWNER, "echo", Errno.EEXIST, "service echo is already held by echo"),
        (OWNER, "a.b", Errno.EINVAL, "service 'a.b': expected a name without a dot"),
        (GUEST, "mine", Errno.EPERM, "service 'mine': a guest may add those that begin with 2000-"),
        (GUEST, f"{GUEST_USERID}-mine", 0, None),
    ],
)
async def test_who_may_add_which_service(
    door: Door, credentials: Credentials, service: str, errnum: int, text: str
) -> None:
    client = await door.connect(credentials)
    client.ask("service.add", {"service": service})
    answer = await client.come()
    assert (answer.errnum, answer.payload) == (errnum, text)


async def test_an_event_comes_once_however_many_prefixes_match(door: Door) -> None:
    client, other = await door.connect(), await door.connect()
    for topic in ("", "job", "job-state"):
        client.ask("event.subscribe", {"topic": topic})
        await client.come()
    other.connection.send_nowait(Event("job-state", {"n": 1}))
    event = await client.come()
    assert (event.topic, event.payload, event.userid) == ("job-state", {"n": 1}, OWNER.userid)
    assert event.sequence > 0
    await client.quiet()


async def test_subscriptions_are_counted(door: Door) -> None:
    client = await door.connect()
    for topic in ("job", "job"):
        client.ask("event.subscribe", {"topic": topic})
        await client.come()
    for errnum in (0, 0, Errno.ENOENT):
        client.connection.send_nowait(Event("jobs", {}))
        if not errnum:
            assert (await client.come()).topic == "jobs"
        client.ask("event.unsubscribe", {"topic": "job"})
        assert (await client.come()).errnum == errnum
    await client.quiet()


async def test_ranks_of_the_instance_are_served_here_and_no_other(door: Door) -> None:
    client = await door.connect()
    for nodeid, errnum in ((0, 0), (SIZE - 1, 0), (SIZE, Errno.EHOSTUNREACH)):
        client.ask("echo.back", {"n": 1}, nodeid=nodeid)
        assert (await client.come()).errnum == errnum


async def test_a_child_that_comes_and_goes_leaves_the_known_subscribers_alone(door: Door) -> None:
    client = await door.connect()
    client.ask("event.subscribe", {"topic": "job"})
    await client.come()
    door.router.route(door.router.peers["echo"], Event("job-state", {}))
    await client.come()
    known = dict(door.router._subscribers)
    assert known
    client.ask("echo.back", {"n": 1}, routes=("a",))
    await client.come()
    client.ask("echo.disconnect", None, flags=NORESPONSE, routes=("a",))
    await client.quiet()
    assert door.router._subscribers == known


@asynccontextmanager
async def listening(door: Door, path: Path, credentials: Credentials | None) -> AsyncIterator[str]:
    async with trio.open_nursery() as serving:
        yield await serving.start(
            serve_native, path, 0o600, lambda _userid: credentials, door.serve
        )
        serving.cancel_scope.cancel()


async def test_over_a_socket_a_client_of_flux_is_served(door: Door, tmp_path: Path) -> None:
    async with listening(door, tmp_path / "local-0", OWNER) as uri:
        assert uri == f"local://{tmp_path}/local-0"
        async with connect_native(uri) as connection:
            client = Client(connection)
            client.ask("echo.back", {"n": 1}, 3)
            answer = await client.come()
            assert (answer.payload["n"], answer.matchtag) == (1, 3)


async def test_over_a_socket_a_user_without_access_gets_an_errno(
    door: Door, tmp_path: Path
) -> None:
    async with (
        listening(door, tmp_path / "local-0", None),
        await trio.open_unix_socket(os.fspath(tmp_path / "local-0")) as stream,
    ):
        assert await stream.receive_some() == bytes([Errno.EPERM])
        assert await stream.receive_some() == b""


async def test_a_broken_frame_ends_that_connection_and_no_other(door: Door, tmp_path: Path) -> None:
    async with listening(door, tmp_path / "local-0", OWNER) as uri, connect_native(uri) as good:
        async with await trio.open_unix_socket(os.fspath(tmp_path / "local-0")) as stream:
            assert await stream.receive_some(1) == b"\0"
            await stream.send_all(b"GET / HTTP/1.1\r\n")
            assert await stream.receive_some() == b""
        client = Client(good)
        client.ask("echo.back", {"n": 1}, 3)
        assert (await client.come()).errnum == 0
    assert any("magic number" in entry.text for entry in door.log)


async def test_a_module_is_pinged_as_libflux_answers(door: Door) -> None:
    client = await door.connect()
    client.ask("echo.ping", {"seq": 1, "pad": ""}, 4)
    answer = await client.come()
    assert answer.payload["seq"] == 1
    assert (answer.payload["userid"], answer.payload["rank"]) == (OWNER.userid, 0)
    assert answer.payload["route"].endswith("!echo")
    client.ask("echo.ping", {"seq": 2, "pad": ""}, 4, nodeid=SIZE - 1)
    assert (await client.come()).payload["rank"] == SIZE - 1
    client.ask("echo.ping", {"seq": 3, "pad": ""}, 4, nodeid=SIZE)
    assert (await client.come()).errnum == Errno.EHOSTUNREACH
    client.ask("echo.ping", None, 5)
    assert (await client.come()).errnum == Errno.EPROTO
    client.ask("nobody.ping", {"seq": 1}, 6)
    assert (await client.come()).errnum == Errno.ENOSYS


async def test_a_ping_that_the_door_answers_is_traced_as_the_modules(door: Door) -> None:
    records: list[Record] = []
    door.router.trace.add_sink(records.append)
    client = await door.connect()
    client.ask("echo.ping", {"seq": 1}, 4)
    await client.come()
    told = [
        (each.kind, type(each.message).__name__)
        for each in records
        if each.party == "echo" and getattr(each.message, "topic", "") == "echo.ping"
    ]
    assert told == [(Kind.RECV, "Request"), (Kind.SEND, "Response")]


async def test_a_client_that_holds_a_service_is_pinged_itself(door: Door) -> None:
    server, client = await door.connect(), await door.connect()
    server.ask("service.add", {"service": "mine"})
    await server.come()
    client.ask("mine.ping", {"seq": 1}, 4)
    assert (await server.come()).topic == "mine.ping"


async def test_the_owner_may_read_the_answers_once_all_requests_are_sent(
    door: Door, autojump_clock: trio.testing.MockClock
) -> None:
    """libflux reads nothing while a send waits for room."""
    client = await door.connect()
    for matchtag in range(1, BEHIND_MESSAGES + 3):
        client.ask("echo.back", None, matchtag)
    await trio.sleep(connections.BEHIND_S_MAX + 1)
    client.ask("echo.back", None, BEHIND_MESSAGES + 3)
    answers = [await client.come() for _ in range(BEHIND_MESSAGES + 3)]
    assert answers[-1].matchtag == BEHIND_MESSAGES + 3


async def test_the_owner_is_read_without_a_pause_while_answers_wait(
    door: Door, autojump_clock: trio.testing.MockClock
) -> None:
    """A pause would hold up the send, and so the reading, of a program that uses libflux."""
    client, began = await door.connect(), trio.current_time()
    for matchtag in range(1, 2 * BEHIND_MESSAGES):
        client.ask("echo.back", None, matchtag)
    await trio.testing.wait_all_tasks_blocked()
    client.ask("stream.note", None, 0, flags=NORESPONSE)
    await trio.testing.wait_all_tasks_blocked()
    assert [each.topic for each in door.heard] == ["stream.note"]
    assert trio.current_time() == began


@pytest.mark.parametrize("is_behind", [False, True])
async def test_a_watch_is_granted_credit_as_its_program_reads(door: Door, is_behind: bool) -> None:
    asked: list[Request] = []

    async def watched(
        handle: Handle, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        handle.register("job-info")
        task_status.started()
        while True:
            for request in await handle.receive():
                assert isinstance(request, Request)
                asked.append(request)
                for line in range(WATCH_CREDIT if request.topic == topics.INFO_WATCH else 0):
                    handle.answer(respond_stream(request, {"event": str(line)}))

    await door.load("job-info", watched)
    client = await door.connect()
    for matchtag in range(2, BEHIND_MESSAGES + 3 if is_behind else 2):
        client.ask("echo.back", None, matchtag)
    client.ask(topics.INFO_WATCH, {"id": 1, "path": "eventlog", "flags": 0}, 1, flags=STREAMING)
    await trio.testing.wait_all_tasks_blocked()
    granted = [(each.topic, each.payload) for each in asked[1:]]
    grant = {"matchtag": 1, "credit": WATCH_CREDIT}
    assert isinstance(asked[0].payload, dict)
    assert asked[0].payload["credit"] == WATCH_CREDIT
    assert granted == ([] if is_behind else [(topics.credit_of(topics.INFO_WATCH), grant)])
    await client.come()
    await trio.testing.wait_all_tasks_blocked()
    assert [each.payload for each in asked[1:]] == [grant]


async def test_a_module_tells_what_its_process_has_used(door: Door) -> None:
    client = await door.connect()
    client.ask("echo.rusage", {}, 4)
    answer = await client.come()
    assert answer.errnum == 0
    assert answer.payload["maxrss"] > 0
    client.ask("echo.rusage", {"who": "nobody"}, 4)
    assert (await client.come()).errnum == Errno.EPROTO


async def test_the_event_by_which_modules_of_all_ranks_clear_their_counts_reaches_them(
    door: Door,
) -> None:
    client = await door.connect()
    client.connection.send_nowait(Event("stream.stats-clear"))
    await client.quiet()
    (heard,) = door.heard
    assert (heard.topic, heard.flags, heard.userid) == ("stream.stats-clear", NORESPONSE, 100)


async def test_debug_flags_of_a_module_are_kept_for_all_clients(door: Door) -> None:
    client, other = await door.connect(), await door.connect()
    asked = [("setbit", 5, 5), ("clrbit", 4, 1), ("set", 8, 8), ("setbit", 0, 8)]
    for op, flags, expected in asked:
        client.ask("echo.debug", {"op": op, "flags": flags}, 4)
        assert (await client.come()).payload == {"flags": expected}
    other.ask("echo.debug", {"op": "setbit", "flags": 0}, 4)
    assert (await other.come()).payload == {"flags": 8}
    other.ask("echo.debug", {"op": "clr"}, 4)
    assert (await other.come()).payload == {"flags": 0}
    other.ask("echo.debug", {"op": "xor", "flags": 1}, 4)
    assert (await other.come()).errnum == Errno.EPROTO
    guest = await door.connect(GUEST)
    guest.ask("echo.debug", {"op": "clr"}, 4)
    assert (await guest.come()).errnum == Errno.EPERM


async def test_a_request_that_is_left_out_says_why(door: Door) -> None:
    client = await door.connect()
    for topic in ("resource.topo-get", "7-shell-ƒ1.terminus.0"):
        client.ask(topic, {}, 4)
        answer = await client.come()
        assert answer.errnum == Errno.ENOSYS
        assert answer.payload.startswith(f"{topic}: ")


async def test_a_name_of_flux_core_means_the_module_that_does_its_work(door: Door) -> None:
    async def scheduler(
        handle: Handle, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        handle.register("sched")
        task_status.started()
        await trio.sleep_forever()

    await door.load("sched", scheduler)
    client = await door.connect()
    client.ask("sched-simple.ping", {"seq": 1}, 4)
    assert (await client.come()).payload["route"].endswith("!sched")
    client.ask("sched-simple.debug", {"op": "setbit", "flags": 1}, 4)
    assert (await client.come()).payload == {"flags": 1}
    client.ask("sched.debug", {"op": "setbit", "flags": 2}, 4)  # the same module
    assert (await client.come()).payload == {"flags": 3}
