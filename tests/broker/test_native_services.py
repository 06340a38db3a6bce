"""What Flux's programs ask of a broker itself, as its programs ask it."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import trio
import trio.testing

from flux_trio.broker import FLUX_VERSION, NativeServices, attributes_of
from flux_trio.broker.native_services import HEARTBEAT_S
from flux_trio.messages import Errno, Event, FluxError
from tests.support.modules import ModuleWorld

ATTRIBUTES = attributes_of(
    owner=7, hostlist="n[0-3]", ranks=4, uri="local:///s/local-0", statedir="/s", started=1.5
)


class Broker(ModuleWorld):
    """A broker with these services, and its owner's handle."""

    async def start(self) -> None:
        await self.load("attr", NativeServices(self.router, ATTRIBUTES, ranks=4).run)
        self.owner = self.handle("owner")

    async def ask(self, topic: str, payload: dict[str, Any] | None = None) -> Any:
        return await self.owner.call(topic, payload)


@pytest.fixture
async def broker(nursery: trio.Nursery) -> Broker:
    broker = Broker(nursery)
    await broker.start()
    return broker


@pytest.mark.parametrize(
    ("name", "value"),
    [("rank", "0"), ("size", "4"), ("version", FLUX_VERSION), ("hostlist", "n[0-3]")],
)
async def test_an_attribute_that_never_changes_says_so(
    broker: Broker, name: str, value: str
) -> None:
    assert await broker.ask("attr.get", {"name": name}) == {"value": value, "flags": 1}
    with pytest.raises(FluxError, match="attribute may not be updated"):
        await broker.ask("attr.set", {"name": name, "value": "x"})
    with pytest.raises(FluxError) as refused:
        await broker.ask("attr.rm", {"name": name})
    assert refused.value.errnum == Errno.EPERM


async def test_a_client_sets_and_removes_what_it_may(broker: Broker) -> None:
    await broker.ask("attr.set", {"name": "test.a", "value": "1"})
    assert await broker.ask("attr.get", {"name": "test.a"}) == {"value": "1", "flags": 0}
    assert "test.a" in (await broker.ask("attr.list"))["names"]
    await broker.ask("attr.rm", {"name": "test.a"})
    for topic in ("attr.get", "attr.rm"):
        with pytest.raises(FluxError) as unknown:
            await broker.ask(topic, {"name": "test.a"})
        assert unknown.value.errnum == Errno.ENOENT
    with pytest.raises(FluxError, match="unknown attribute"):
        await broker.ask("attr.set", {"name": "mine", "value": "1"})


async def test_the_level_of_the_log_is_one_of_syslog_or_none(broker: Broker) -> None:
    for value in ("-1", "7"):
        await broker.ask("attr.set", {"name": "log-stderr-level", "value": value})
    for value in ("8", "-2", "x", ""):
        with pytest.raises(FluxError, match=f"expected -1 to 7, got {value}") as refused:
            await broker.ask("attr.set", {"name": "log-stderr-level", "value": value})
        assert refused.value.errnum == Errno.EINVAL
    assert (await broker.ask("attr.get", {"name": "log-stderr-level"}))["value"] == "7"


async def test_a_guest_reads_attributes_and_sets_none(broker: Broker) -> None:
    guest = broker.guest()
    assert (await guest.call("attr.get", {"name": "size"}))["value"] == "4"
    for topic, payload in (
        ("attr.set", {"name": "test.a", "value": ""}),
        ("attr.rm", {"name": "a"}),
    ):
        with pytest.raises(FluxError) as refused:
            await guest.call(topic, payload)
        assert refused.value.errnum == Errno.EPERM


async def test_the_instance_runs(broker: Broker) -> None:
    assert (await broker.ask("state-machine.get"))["state"] == "run"
    assert await broker.ask("state-machine.wait") == {}
    assert await broker.ask("state-machine.monitor") == {"state": 5}


async def test_all_ranks_are_online(broker: Broker) -> None:
    assert await broker.ask("groups.get", {"name": "broker.online"}) == {"members": "0-3"}
    with pytest.raises(FluxError, match="no group mine"):
        await broker.ask("groups.get", {"name": "mine"})


async def test_an_event_is_published_as_its_sender(broker: Broker) -> None:
    broker.owner.subscribe("foo.*")
    payload = base64.b64encode(b'{"n":1}\0').decode()
    seq = (await broker.ask("event.publish", {"topic": "foo.a", "flags": 0, "payload": payload}))[
        "seq"
    ]
    (event,) = await broker.owner.receive()
    assert (event.topic, event.payload, event.sequence) == ("foo.a", {"n": 1}, seq)
    for bad in ("no base64!", base64.b64encode(b"[1]").decode(), base64.b64encode(b"{").decode()):
        with pytest.raises(FluxError) as refused:
            await broker.ask("event.publish", {"topic": "foo.a", "flags": 0, "payload": bad})
        assert refused.value.errnum == Errno.EPROTO


async def test_no_files_are_mapped_so_that_an_archive_can_be_removed(broker: Broker) -> None:
    assert await broker.ask("content.mmap-remove", {"tag": "main"}) == {}
    with pytest.raises(FluxError, match="no content store") as refused:
        await broker.ask("content.mmap-add", {"tag": "main"})
    assert refused.value.errnum == Errno.ENOSYS


@pytest.mark.parametrize("topic", ["overlay.health", "rexec.exec", "content.load", "cron.list"])
async def test_what_is_left_out_says_so(broker: Broker, topic: str) -> None:
    with pytest.raises(FluxError, match=f"{topic}: (one broker|no processes|the kvs|there is no)"):
        await broker.ask(topic, {})


async def test_a_heartbeat_comes_while_somebody_listens(
    broker: Broker, autojump_clock: trio.testing.MockClock
) -> None:
    before = broker.router.sequence
    await trio.sleep(3 * HEARTBEAT_S)
    assert broker.router.sequence == before
    listener = broker.handle("listener")
    listener.subscribe("heartbeat.pulse")
    with trio.fail_after(3 * HEARTBEAT_S):
        (event,) = await listener.receive()
    assert isinstance(event, Event)
    assert event.topic == "heartbeat.pulse"
