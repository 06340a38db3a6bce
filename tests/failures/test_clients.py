"""What happens when a client or another remote peer goes, hangs, or asks wrongly (RFC 6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from flux_trio.broker import serve_connection
from flux_trio.messages import (
    ROLE_OWNER,
    Errno,
    Flag,
    FluxError,
    Level,
    Message,
    Request,
    Response,
    topics,
)
from flux_trio.transports import Credentials, EndOfConnection, MemoryConnection, memory_pair
from tests.support.failing import HOUR, OWNER, Scene, scene, settle
from tests.support.leaks import nothing_left

STREAMING = int(Flag.STREAMING)
BOUND = 16  # messages that may wait for a remote peer


@asynccontextmanager
async def connected(
    s: Scene, name: str = "ann", bound: int = BOUND
) -> AsyncIterator[MemoryConnection]:
    """A remote peer of the owner's: `name`-N to the broker; it goes with the block."""
    ours, theirs = memory_pair(bound)
    who = Credentials(OWNER, ROLE_OWNER, name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_connection, s.router, s.instance.write_log, ours, who)
        await settle()
        yield theirs
        await theirs.aclose()


async def read_all(connection: MemoryConnection) -> list[Any]:
    """What waits there, once everything has settled."""
    await settle()
    found: list[Message] = []
    with trio.move_on_after(0.001):
        found += await connection.receive()
    return found


async def test_jobs_of_a_client_that_goes_stay(autojump_clock: MockClock) -> None:
    async with scene() as s:
        async with connected(s) as ann:
            running = await s.submit(run_s=HOUR)
            spec = await s.call(topics.INFO_LOOKUP, {"id": running, "keys": ["jobspec"]})
            assert "jobspec" in spec
            ann.send_nowait(Request(topics.INFO_WATCH, {"id": running}, 1, STREAMING))
            await settle()
        await s.wait(running)
        assert "exception" not in await s.events(running)


async def test_streams_of_a_client_that_goes_are_cancelled(autojump_clock: MockClock) -> None:
    "6.disconnect: nothing is sent for it any more, and no state of it is left anywhere."
    async with scene() as s:
        running = await s.submit(run_s=HOUR)
        async with nothing_left(s.instance), connected(s) as ann:
            ann.send_nowait(Request(topics.INFO_WATCH, {"id": running}, 1, STREAMING))
            ann.send_nowait(Request(topics.JOB_JOURNAL, {}, 2, STREAMING))
            key = "job.0000.0000.0000.0000.eventlog"
            ann.send_nowait(Request(topics.KVS_OWN.watch, {"key": key}, 3, STREAMING))
            ann.send_nowait(Request("broker.subscribe", {"topic": "job-exception"}, 4))
            assert {message.matchtag for message in await read_all(ann)} >= {1, 2, 4}
        before = len(s.records)
        jobid = await s.submit(run_s=1)
        await s.cancel(jobid)
        to_ann = [r for r in s.records[before:] if r.peer.startswith("ann")]
        assert to_ann == []


async def test_client_that_reads_nothing_is_dropped_by_name_and_nobody_waits_for_it(
    autojump_clock: MockClock,
) -> None:
    "design, remote peer hangs: a bounded queue, then it is dropped, by name, in the log."
    async with scene() as s, connected(s) as deaf, connected(s, "bob") as bob:
        for peer in (deaf, bob):
            peer.send_nowait(Request(topics.JOB_JOURNAL, {}, 1, STREAMING))
        told = 0
        for _ in range(BOUND):
            await s.wait(await s.submit())
            told += len(await read_all(bob))
        assert s.log() == [f"ann-2.err: dropped: {BOUND} messages wait for the peer to read them"]
        assert "ann-2" not in s.router.peers
        assert "bob-3" in s.router.peers
        assert told > BOUND
        assert len(await deaf.receive()) == BOUND  # what was on its way before the gap
        with pytest.raises(EndOfConnection, match=f"{BOUND} messages wait"):
            await deaf.receive()


async def test_answers_for_a_client_that_has_gone_reach_nobody_and_are_traced(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s, s.instance.connect("server") as server:
        await server.call("broker.register", {"service": "slow"})
        async with connected(s) as ann:
            ann.send_nowait(Request("slow.x", None, 7))
            await settle()
        request, farewell = await server.receive()
        assert farewell.topic == "slow.disconnect"
        server.send(Response("slow.x", None, 0, 7, routes=request.routes))
        assert s.drops("slow.x") == [f"{request.sender} is gone"]


async def test_client_that_comes_back_under_its_name_is_another_peer(
    autojump_clock: MockClock,
) -> None:
    "Connection lost, then the old one speaks again: nothing of before is the new one's."
    async with scene() as s, s.instance.connect("server") as server:
        await server.call("broker.register", {"service": "slow"})
        async with connected(s) as ann:
            ann.send_nowait(Request("slow.x", None, 7))
            await settle()
        request = (await server.receive())[0]
        async with connected(s) as ann:
            server.send(Response("slow.x", {"n": 1}, 0, 7, routes=request.routes))
            ann.send_nowait(Response("sched.alloc", {"id": 1, "type": 0}, routes=("job-manager",)))
            assert await read_all(ann) == []
        (why,) = s.drops("sched.alloc")
        assert why.endswith("does not hold that service")


async def test_services_of_a_remote_peer_go_with_it(autojump_clock: MockClock) -> None:
    async with scene() as s:
        async with connected(s) as ann:
            ann.send_nowait(Request("broker.register", {"service": "hers"}, 1))
            await settle()
            s.handle.send(Request("hers.x", None, 9))
            await settle()
            assert "hers" in s.router.services
        (answer,) = await s.handle.receive()
        assert (answer.matchtag, answer.errnum) == (9, Errno.ENOSYS)
        assert "hers" not in s.router.services


@pytest.mark.parametrize(
    ("topic", "payload", "errnum", "text"),
    [
        ("job-manager.fly", None, Errno.ENOSYS, "no method fly in service job-manager"),
        ("nobody.x", None, Errno.ENOSYS, "No service matching nobody.x is registered"),
        (topics.JOB_RAISE, {"id": "x"}, Errno.EPROTO, "Expected `int`, got `str` - at `$.id`"),
        pytest.param(
            *(topics.JOB_RAISE, [1], Errno.EPROTO, "object"),
            marks=pytest.mark.breaks("invariant.payload-is-object"),
        ),
        (topics.JOB_RAISE, None, Errno.EPROTO, "payload"),
        (topics.JOB_URGENCY, {"id": 1}, Errno.EPROTO, "missing required field `urgency`"),
        (topics.INGEST_SUBMIT, {"jobspec": {"version": 9}}, Errno.EINVAL, "version"),
        (topics.KVS_LOOKUP, {"key": 1}, Errno.EPROTO, "Expected `str`, got `int`"),
        (topics.KVS_COMMIT, {"ops": [["burn", "a"]]}, Errno.EPROTO, "burn"),
        (topics.LIST_ID, {"id": 1}, Errno.ENOENT, "job"),
        (topics.RESOURCE_DRAIN, {"targets": "9"}, Errno.EINVAL, "9"),
    ],
)
async def test_wrong_request_is_answered_with_an_error_and_others_are_unaffected(
    autojump_clock: MockClock, topic: str, payload: Any, errnum: int, text: str
) -> None:
    async with scene() as s:
        other = await s.submit(run_s=10)
        with pytest.raises(FluxError) as refused:
            await s.call(topic, payload)
        assert refused.value.errnum == errnum
        assert text in refused.value.text
        await s.wait(other)
        assert s.log() == []


async def test_clients_that_come_and_go_leave_nothing(autojump_clock: MockClock) -> None:
    async with scene() as s:
        running = await s.submit(run_s=HOUR)
        async with nothing_left(s.instance):
            for _ in range(20):
                async with connected(s) as ann:
                    ann.send_nowait(Request(topics.INFO_WATCH, {"id": running}, 1, STREAMING))
                    ann.send_nowait(Request("broker.register", {"service": "hers"}, 2))
                    ann.send_nowait(Request(topics.JOB_JOURNAL, {}, 3, STREAMING))
                    await settle()


LONG = "x" * 300_000


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        (topics.JOB_QUEUE_STATUS, {"name": LONG}),
        (topics.JOB_JOBTAP, {"load": LONG}),
        ("job-manager.getattr", {"id": 1, "attrs": [LONG]}),
        (topics.INFO_LOOKUP, {"id": 1, "keys": [LONG]}),
        (topics.KVS_COMMIT, {"ops": [[LONG, "a", "b"]]}),
        (topics.RESOURCE_DRAIN, {"targets": "0", "mode": LONG}),
        (topics.MODULE_REMOVE, {"name": LONG}),
        (f"kvs.{LONG}", None),
        (f"{LONG}.x", None),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_error_does_not_give_back_all_that_was_sent(
    autojump_clock: MockClock, topic: str, payload: dict[str, Any] | None
) -> None:
    async with scene() as s:
        with pytest.raises(FluxError) as refused:
            await s.call(topic, payload)
        assert len(refused.value.text) < 5000
        assert max([len(line) for line in s.log(Level.DEBUG)], default=0) < 50_000
        assert "job-manager" in s.supervisor
