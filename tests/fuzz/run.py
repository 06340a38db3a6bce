"""Cases by the thousand, from a seed: frames at the codec, payloads at services, bytes at the door.

Whatever comes, it is taken or refused by name: nothing crashes, nothing grows, and the next client
is served. A case that shows otherwise is a `Finding`, with what it takes to see it again.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import _lru_cache_wrapper, partial
from pathlib import Path
from random import Random
from typing import Any, Final

import trio

from flux_trio.broker import LogEntry, NativeShared, serve_connection, serve_native_connection
from flux_trio.config import Config
from flux_trio.instance import Instance
from flux_trio.messages import (
    ROLE_OWNER,
    ROLE_USER,
    USERID_UNKNOWN,
    Event,
    Flag,
    Level,
    RemoteProtocolError,
    Request,
    Response,
    native,
    topics,
)
from flux_trio.messages.codec import decode_frame, encode
from flux_trio.protocols import ACTIVE
from flux_trio.testing import simulated_instance
from flux_trio.transports import (
    Connection,
    Credentials,
    TransportError,
    connect_websocket,
    memory_pair,
    serve_native,
    serve_unix,
)
from flux_trio.transports.native import connect_native
from tests.fuzz import mutations
from tests.support.roles import ASKED, JOB_SPEC, LONG_SPEC

OWNER: Final = 1000
GUEST: Final = 2001
BATCH: Final = 200  # cases of one connection
OBJECTS_MAX: Final = 200  # more after as many connections again; caches of the interpreter
SETTLED_S: Final = 30.0  # of the virtual clock: canceled jobs are over
GROWTH_BYTES_MAX: Final = 256 * 1024  # of the codec: caches of the interpreter, and no more
UPGRADE: Final = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
# What an owner may do to an instance is no finding: end parts of it, and play them.
OWNERS: Final = frozenset(
    topic
    for topic in ASKED
    if topic.startswith(("module.", "sched.", "config.", "kvs.", "log."))
    or topic.endswith(("-hello", "-ready", ".start", ".config-reload"))
    or topic
    in (
        topics.BROKER_SHUTDOWN,
        topics.BROKER_REGISTER,
        topics.JOB_SUBMIT,
        topics.JOB_JOBTAP,
        topics.RESOURCE_ACQUIRE,
        topics.RESOURCE_RELEASE,
    )
)


class Finding(AssertionError):
    """Something that must not be."""


def fuzz_codec(source: Random, count: int) -> Counter[str]:
    """How frames were taken: as messages, or by which rule they were refused."""
    seen: Counter[str] = Counter()
    for _ in range(count):
        data = mutations.frame(source)
        try:
            messages = decode_frame(data)
        except RemoteProtocolError as error:
            seen[str(error).partition(":")[0].split("[")[0].split(".")[0]] += 1
            continue
        except Exception as error:
            raise Finding(f"frame {data.hex()}: {error!r}") from error
        seen["taken"] += 1
        if decode_frame(b"".join(map(encode, messages))) != messages:
            raise Finding(f"frame {data.hex()}: says something else when it is sent on")
    return seen


def fuzz_native(source: Random, count: int) -> Counter[str]:
    """The same for frames of Flux's own wire, each at the beginning of a stream."""
    seen: Counter[str] = Counter()
    for _ in range(count):
        data = mutations.native_frame(source)
        reader = native.FrameReader()
        reader.feed(data)
        try:
            frames = list(reader.frames())
        except RemoteProtocolError as error:
            seen[str(error).partition(":")[0]] += 1
            continue
        except Exception as error:
            raise Finding(f"native frame {data.hex()}: {error!r}") from error
        seen["taken" if frames else "incomplete"] += 1
        for frame in frames:
            if native.decode(native.encode(frame)) != frame:
                raise Finding(f"native frame {data.hex()}: is another when it is sent on")
            message = native.to_message(frame)
            native.encode(native.to_frame(message))
    return seen


def check_codec_does_not_grow(
    fuzz: Callable[[Random, int], Counter[str]], source: Random, count: int
) -> None:
    """As many cases again take no more memory. Raises Finding."""
    fuzz(source, count)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        fuzz(source, count)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    if grown > GROWTH_BYTES_MAX:
        raise Finding(f"the codec has {grown} bytes more after {count} frames")


def requests(source: Random, count: int, jobs: tuple[int, int], userid: int) -> Iterator[Request]:
    """Requests of every kind there is, and something in each that may be wrong."""
    allowed = sorted(ASKED) if userid != OWNER else sorted(set(ASKED) - OWNERS)
    for matchtag in range(1, count + 1):
        topic = source.choice(allowed)
        asked = source.choice(list(ASKED[topic].values()))
        payload = asked.payload(*jobs, userid)
        if source.random() < 0.9:
            payload = mutations.changed(source, payload)
        flags = int(Flag.STREAMING) if asked.streaming != (source.random() < 0.1) else 0
        fits = payload if isinstance(payload, dict) or payload is None else {"x": payload}
        yield Request(topic, fits, matchtag, flags)


def through_routers(source: Random, batch: list[Request], userid: int) -> list[Any]:
    """Those requests as clients of the native door send them, with what else such clients send.

    Some come by routers, whose clients have stacks of their own; the owner speaks for others; some
    clients say that they are gone, publish events, and answer what nobody has asked.
    """
    sent: list[Any] = []
    for request in batch:
        stack = tuple(f"hop{source.randrange(3)}" for _ in range(source.randrange(3)))
        spoken = source.choice((0xFFFFFFFF, userid, 7)), source.choice((0, ROLE_USER, 255))
        tag = source.randrange(8)
        payload = "\udccd{" if source.random() < 0.02 else request.payload  # bytes, escaped
        sent.append(Request(request.topic, payload, tag, request.flags, 0xFFFFFFFF, *spoken, stack))
        chance = source.random()
        service = request.topic.partition(".")[0]
        if chance < 0.05:
            gone = f"{request.topic.rpartition('.')[0]}.disconnect"
            sent.append(Request(gone, None, tag, int(Flag.NORESPONSE), routes=stack))
        elif chance < 0.1:
            cancel = {"matchtag": tag}
            sent.append(
                Request(f"{request.topic}-cancel", cancel, 0, int(Flag.NORESPONSE), routes=stack)
            )
        elif chance < 0.15:
            own = source.choice(("event.subscribe", "event.unsubscribe", "service.remove"))
            name = {"topic": service, "service": source.choice((service, "mine", "a.b", ""))}
            sent.append(Request(own, source.choice((name, {}, None)), tag, routes=stack))
        elif chance < 0.2:
            sent.append(source.choice((Event("fuzz.event", {}), Response("fuzz.x", {}, 0, tag))))
    return sent


async def fuzz_services(source: Random, count: int) -> Counter[str]:
    """How requests were answered, by errno; 0 is success. Raises Finding."""
    seen: Counter[str] = Counter()
    async with simulated_instance() as instance:
        jobs = await _submit_two(instance)
        modules = instance.supervisor.list()
        while count > 0:
            userid, role = source.choice(((OWNER, ROLE_OWNER), (GUEST, ROLE_USER)))
            batch = list(requests(source, min(BATCH, count), jobs, userid))
            count -= len(batch)
            who = Credentials(userid, role, "fuzz")
            if source.random() < 0.5:
                seen += await _ask(instance, serve_connection, who, batch)
            else:
                shared = NativeShared(instance.router, instance.write_log, 4)
                native_door = partial(serve_native_connection, shared=shared)
                seen += await _ask(
                    instance, native_door, who, through_routers(source, batch, userid)
                )
            _check_whole(instance, modules, batch)
        await _check_served(instance)
    return seen


async def check_instance_does_not_grow(source: Random, count: int) -> None:
    """As many connections again, at the native door, leave no objects behind. Raises Finding."""
    async with simulated_instance(config=Config(edition="current")) as instance:
        await _play_and_forget(instance, source, count)
        before = _objects()
        await _play_and_forget(instance, source, count)
        more = _objects() - before
    if more.total() > OBJECTS_MAX:
        raise Finding(f"{count} connections leave {more.total()} objects: {more.most_common(9)}")


async def _play_and_forget(instance: Instance, source: Random, count: int) -> None:
    """Serve `count` connections, then end and forget their jobs."""
    shared = NativeShared(instance.router, instance.write_log, 4)
    native_door = partial(serve_native_connection, shared=shared)
    who = Credentials(OWNER, ROLE_OWNER, "fuzz")
    jobs = await _submit_two(instance)
    for _ in range(count):
        batch = through_routers(source, list(requests(source, BATCH // 2, jobs, OWNER)), OWNER)
        await _ask(instance, native_door, who, batch)
    cancel = {"userid": USERID_UNKNOWN, "states": ACTIVE, "severity": 0, "type": "cancel"}
    async with instance.connect() as handle:
        await handle.call(topics.LIST_UNPAUSE)
        await handle.call(topics.JOB_RAISEALL, {**cancel, "dry_run": False})
        await trio.sleep(SETTLED_S)
        while (await handle.call(topics.JOB_PURGE, {"num_limit": 0, "force": True}))["count"]:
            pass
    await trio.sleep(SETTLED_S)


def _objects() -> Counter[str]:
    """How many objects of each type there are, without those of which there is a bounded number.

    These are caches, lines of the log, and the deadlines that Trio forgets by the thousand.
    """
    for each in gc.get_objects():
        if isinstance(each, _lru_cache_wrapper) and each.__module__.startswith("flux_trio"):
            each.cache_clear()
    gc.collect()
    bounded = {LogEntry.__name__, trio.CancelScope.__name__, tuple.__name__}
    names = (type(each).__name__ for each in gc.get_objects())
    return Counter(name for name in names if name not in bounded)


async def _submit_two(instance: Instance) -> tuple[int, int]:
    async with instance.connect(userid=GUEST) as handle:
        answers = [
            await handle.call(topics.INGEST_SUBMIT, {"jobspec": spec})
            for spec in (JOB_SPEC, LONG_SPEC)
        ]
    return answers[0]["id"], answers[1]["id"]


async def _ask(
    instance: Instance, serve: Callable[..., Awaitable[None]], who: Credentials, batch: list[Any]
) -> Counter[str]:
    """What one connection is told, until nothing more comes."""
    ours, theirs = memory_pair()
    seen: Counter[str] = Counter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, instance.router, instance.write_log, ours, who)
        for request in batch:
            theirs.send_nowait(request)
        with trio.move_on_after(1.0), suppress(TransportError):  # of the virtual clock
            while True:
                for message in await theirs.receive():
                    if isinstance(message, Response):
                        seen[str(message.errnum)] += 1
        await theirs.aclose()
    return seen


def _check_whole(instance: Instance, modules: list[Any], batch: list[Request]) -> None:
    """Every module is the one that it was, nothing is kept of the connection."""
    now = instance.supervisor.list()
    crashes = [
        str(entry)
        for entry in instance.log
        if entry.level <= Level.CRIT and not entry.party.startswith("fuzz")  # may log as well
    ]
    if crashes or [each.t_loaded for each in now] != [each.t_loaded for each in modules]:
        raise Finding(f"{crashes}; one of {[(each.topic, each.payload) for each in batch]}")
    kept = [
        key for peer in instance.router.peers.values() for key in peer.inflight if "fuzz" in key
    ]
    if kept or any(name.startswith("fuzz") for name in instance.router.peers):
        raise Finding(f"kept of a connection that is gone: {kept}")


async def _check_served(instance: Instance) -> None:
    async with instance.connect() as handle:
        for service in (topics.KVS, topics.JOB_MANAGER, topics.JOB_LIST, topics.SCHED):
            stats = await handle.call(topics.stats_of(service))
            if stats.get("watches"):
                raise Finding(f"{service} keeps streams of nobody: {stats}")
        await handle.call(topics.INGEST_SUBMIT, {"jobspec": JOB_SPEC})


async def fuzz_door(source: Random, count: int, directory: Path) -> None:
    """Bytes at a real socket; between them an honest client is served. Raises Finding."""
    path = directory / "local"

    async def echo(connection: Connection, _who: Credentials) -> None:
        with suppress(TransportError):
            while True:
                for message in await connection.receive():
                    connection.send_nowait(message)

    def anybody(userid: int) -> Credentials:
        return Credentials(userid, ROLE_USER, "fuzz")

    async with trio.open_nursery() as nursery:
        uri = await nursery.start(serve_unix, path, 0o600, anybody, echo)
        for index in range(count):
            first, then = mutations.stream(source, UPGRADE)
            await _say(path, first, then)
            if index % 50 == 49 or index == count - 1:
                async with connect_websocket(uri) as honest:
                    honest.send_nowait(Request("still.here"))
                    if await honest.receive() != [Request("still.here")]:
                        raise Finding(f"not served after {first.hex()} {then.hex()}")
        nursery.cancel_scope.cancel()


async def fuzz_native_door(source: Random, count: int, directory: Path) -> None:
    """Frames at a real socket of the native door; an honest client is served. Raises Finding."""
    path = directory / "local-0"

    async def echo(connection: Connection, _who: Credentials) -> None:
        with suppress(TransportError):
            while True:
                for message in await connection.receive():
                    connection.send_nowait(message)

    def anybody(userid: int) -> Credentials:
        return Credentials(userid, ROLE_USER, "fuzz")

    async with trio.open_nursery() as nursery:
        uri = await nursery.start(serve_native, path, 0o600, anybody, echo)
        async with connect_native(uri) as honest:
            for _ in range(count):
                sent = b"".join(mutations.native_frame(source) for _ in range(20))
                await _say(path, sent, b"")
                honest.send_nowait(Request("still.here"))
                if await honest.receive() != [Request("still.here")]:
                    raise Finding(f"not served after {sent.hex()}")
        nursery.cancel_scope.cancel()


async def _say(path: Path, first: bytes, then: bytes) -> None:
    """To the end of the connection, whoever ends it. Raises trio.TooSlowError when nobody does."""
    with trio.fail_after(10), suppress(trio.BrokenResourceError):
        async with await trio.open_unix_socket(str(path)) as stream:
            await stream.send_all(first)
            head = b""
            while then and b"\r\n\r\n" not in head and (part := await stream.receive_some()):
                head += part
            await stream.send_all(then)
            await stream.send_eof()
            async for _ in stream:
                pass
