"""Every key that Flux's own programs send means something, and is read where the table says so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio.testing

from docs.make_native_keys import meanings_of
from flux_trio.broker import NativeServices, NativeShared, attributes_of, serve_native_connection
from flux_trio.broker.native_keys import (
    ASKED,
    LEFT_OUT,
    MODULE,
    NOTED_MAX,
    SHELL,
    AnyKeys,
    NoKeys,
    UnknownKeys,
    general,
    keys_of,
    shape_of,
)
from flux_trio.broker.supervisor import ModuleSpec
from flux_trio.config import Config
from flux_trio.instance import Instance
from flux_trio.messages import (
    ROLE_LOCAL,
    ROLE_OWNER,
    USERID_UNKNOWN,
    Errno,
    Request,
    Response,
    topics,
)
from flux_trio.messages.types import NORESPONSE, STREAMING
from flux_trio.testing import simulated_instance
from flux_trio.transports import Connection, Credentials, memory_pair

CAPTURES = Path(__file__).parents[1] / "data" / "wire-requests.jsonl"
OWNER = Credentials(1000, ROLE_OWNER | ROLE_LOCAL, "owner")
WAIT_S = 0.5  # of the virtual clock
WRONG: Any = [[]]  # of no key's type


class Captured(msgspec.Struct):
    """A request as a program of flux-core 0.88 has sent it; `of` is the recording."""

    of: str
    topic: str
    flags: int
    nodeid: int
    matchtag: int
    payload: Any


def captured() -> list[Captured]:
    return [
        msgspec.convert(json.loads(line), Captured) for line in CAPTURES.read_text().splitlines()
    ]


def is_left_out(topic: str) -> bool:
    services = {each.partition(".")[0] for each in LEFT_OUT} & {"content", "overlay", "rexec"}
    return (
        topic in LEFT_OUT
        or general(topic) in LEFT_OUT
        or any(general(topic).startswith(each) for each in LEFT_OUT if each.startswith(SHELL))
        or topic.partition(".")[0] in services
    )


RAW = ("log.append",)  # a line of text
OF_LIBFLUX = ("disconnect",)


def asked_here() -> list[Captured]:
    return [
        each
        for each in captured()
        if each.topic not in RAW and each.topic.rpartition(".")[2] not in OF_LIBFLUX
    ]


@pytest.mark.parametrize(
    "each",
    [each for each in asked_here() if not is_left_out(each.topic)],
    ids=lambda each: f"{each.of} {each.topic}",
)
def test_every_key_of_a_recorded_request_is_in_the_table(each: Captured) -> None:
    shape = shape_of(each.topic)
    assert shape is not None, f"{each.topic} is not in the table"
    if shape is not AnyKeys and isinstance(each.payload, dict):
        assert each.payload.keys() <= keys_of(shape)


SHAPES = [each for each in dict.fromkeys(ASKED.values()) if each not in (NoKeys, AnyKeys)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda each: each.__name__)
def test_every_key_of_the_table_says_what_it_does(shape: type[msgspec.Struct]) -> None:
    meanings = meanings_of(shape)
    assert {key for key in keys_of(shape) if not meanings.get(key)} == set()


class World:
    """An instance with a native door, and the owner's connection."""

    def __init__(self, instance: Instance, connection: Connection) -> None:
        self.instance = instance
        self.connection = connection
        self._tag = 0

    async def ask(
        self, topic: str, payload: Any, flags: int = 0, nodeid: int = 0
    ) -> Response | None:
        """The first answer; None without one."""
        self._tag += 1
        tag = 0 if flags & NORESPONSE else self._tag
        self.connection.send_nowait(Request(topic, payload, tag, flags, 0, USERID_UNKNOWN, 0))
        with trio.move_on_after(WAIT_S):
            while not flags & NORESPONSE:
                for answer in await self.connection.receive():
                    if isinstance(answer, Response) and answer.matchtag == tag:
                        return answer
        return None


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    config = Config(edition="current")
    async with simulated_instance(config=config) as instance:
        attributes = attributes_of(
            owner=1000, hostlist="n", ranks=1, uri="", statedir="/s", started=0.0
        )
        native = NativeServices(instance.router, attributes, 1)
        instance.supervisor.specs["attr"] = ModuleSpec("attr", native.run)
        await instance.supervisor.load("attr")
        shared = NativeShared(instance.router, instance.write_log, 4)
        ours, theirs = memory_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                serve_native_connection, instance.router, instance.write_log, ours, OWNER, shared
            )
            yield World(instance, theirs)
            nursery.cancel_scope.cancel()


def stands_for(topic: str) -> str:
    return topic.replace(MODULE, "job-manager")


@pytest.mark.breaks("6.cancel.1", "6.cancel.2")
async def test_every_key_of_the_table_is_read(autojump_clock: trio.testing.MockClock) -> None:
    """A value of another type is refused by a text that names the key."""
    unread = {}
    async with world() as asking:
        for topic, shape in ASKED.items():
            if topic.startswith(SHELL):
                continue  # needs a job that runs: tests/cores/test_exec_guest.py
            for key in sorted(keys_of(shape)):
                flags = STREAMING if topic in topics.STREAMS else 0
                answer = await asking.ask(stands_for(topic), {key: WRONG}, flags)
                text = "no answer" if answer is None else answer.error_text
                errnum = 0 if answer is None else answer.errnum
                if errnum != Errno.EPROTO or key not in text:
                    unread[topic, key] = (errnum, text)
    assert unread == {}


async def test_recorded_requests_are_understood(autojump_clock: trio.testing.MockClock) -> None:
    """None is refused for its form, and no key of them is unknown; what is left out says so."""
    refused = {}
    async with world() as asking:
        for each in asked_here():
            if each.topic.startswith(("module.", "config.load")) or "-shell-" in each.topic:
                continue  # they change the instance, or need a job that runs
            topic = each.topic.replace("sched-simple", "sched").replace("broker.ping", "kvs.ping")
            answer = await asking.ask(topic, each.payload, each.flags & (STREAMING | NORESPONSE))
            errnum = 0 if answer is None else answer.errnum
            if each.flags & NORESPONSE:
                continue
            is_unserved = errnum in (Errno.ENOSYS, Errno.EPROTO)
            if is_unserved != is_left_out(each.topic):
                refused[each.of, each.topic] = (errnum, answer and answer.error_text)
            if is_unserved:
                assert answer is not None
                assert answer.error_text, each.topic
        told = [
            entry.text for entry in asking.instance.log if "which is not known here" in entry.text
        ]
    assert refused == {}
    assert told == []


def test_a_key_that_nobody_knows_is_noted_once() -> None:
    lines: list[str] = []
    keys = UnknownKeys(lambda _level, _party, text: lines.append(text))
    for _ in range(3):
        keys.look_at(Request(topics.JOB_KILL, {"id": 1, "signum": 9, "later": True}))
        keys.look_at(Request("sched.debug", {"op": "clr", "more": 1}))
        keys.look_at(Request("sched.ping", {"anything": 1}))
        keys.look_at(Request("unheard.of", {"anything": 1}))
    assert lines == [
        "job-manager.kill: ignored the key 'later', which is not known here",
        "sched.debug: ignored the key 'more', which is not known here",
    ]


def test_noted_keys_have_a_bound() -> None:
    lines: list[str] = []
    keys = UnknownKeys(lambda _level, _party, text: lines.append(text))
    keys.look_at(Request(topics.JOB_KILL, {f"k{n}": 1 for n in range(2 * NOTED_MAX)}))
    assert len(lines) == NOTED_MAX
