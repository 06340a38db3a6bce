"""What faults do to the parties of a world: connections, clients, and the instance as a whole."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final

from flux_trio.broker import Peer
from flux_trio.formats import Idset, Jobspec
from flux_trio.lab.world.clients import GUEST, Asker, Client, RetryingClient
from flux_trio.lab.world.cores_world import CoresWorld
from flux_trio.lab.world.station import Station
from flux_trio.messages import Level, Message, Request, Response, topics
from flux_trio.messages.types import STREAMING
from flux_trio.trace import KILLED, Kind, Record
from flux_trio.transports.base import QUEUE_MESSAGES_MAX, UNREAD

OWNER: Final = "owner"
LATE_OWNER: Final = "late-owner"
LATE_OWNER_S: Final = 1.0


# --- connections


def cut_off(world: CoresWorld, name: str) -> tuple[Station, list[Any]] | None:
    """Lose the connection of a module; return the module, and what it had received and not acted
    on. None if the module is not there.
    """
    station = world.stations.get(name)
    if station is None:
        return None
    taken = world.taken_by(station)
    world.crash(name, f"its connection is lost, {KILLED}")
    return station, taken


def speak_again(world: CoresWorld, station: Station, taken: list[Any]) -> None:
    """Let a module that has lost its connection connect once more, under another name, and send the
    answers that it still owes.

    It acts on the messages that it had `taken` before the loss, and on its timers that are due; its
    commits are answered at once. Then it is gone for good.
    """
    name = world.router.unique_name(station.name)
    peer = Peer(name, station.peer.userid, station.peer.rolemask, lambda *_: None, lambda: 0)
    world.router.add(peer)
    world.liars[name] = None
    inputs = [*taken, *station.pop_due(world.passed)]
    while inputs:
        actions, inputs = station.core.turn(world.now, inputs), []
        for action in actions:
            match action:
                case Response():
                    world.router.route(peer, action)
                case Request(topic=topic) if topic in topics.COMMITS:
                    inputs.append(Response(action.topic, {}, matchtag=action.matchtag))
    world.router.remove(peer)


def add_second(world: CoresWorld, name: str) -> None:
    """Start another module of a kind beside the first one, which has the service name.

    Nothing happens if the first one is not there. The second one goes with the first one, or when
    it acquires resources that the first one has lost: without the service name it cannot take its
    place.
    """
    if name not in world.stations:
        return
    second = world.router.unique_name(name)

    def goes(record: Record) -> None:
        if _has_ended(record, name) or _gives_resources(record, second):
            world.at_once(lambda: world.remove(second, ""))

    world.trace.add_sink(goes)
    world.start(world.add(second, world.make(name)))


def _has_ended(record: Record, name: str) -> bool:
    data = record.data or {}
    return record.kind == Kind.MODULE and data["module"] == name and data["what"] != "started"


def _gives_resources(record: Record, name: str) -> bool:
    """Whether a record is the answer that lets `name` acquire resources."""
    match record.message:
        case Response(topic=topics.RESOURCE_ACQUIRE, errnum=0):
            return record.kind == Kind.SEND and record.peer == name
    return False


# --- clients


def lose_client(world: CoresWorld, back: float, late: float | None) -> None:
    """Lose the owner's connection; the owner connects again after `back` seconds.

    If `late` is given, the old connection sends its open requests again after so many seconds.
    """
    for name, station in list(world.stations.items()):
        if name.startswith(OWNER):
            asked = _open_requests(world, name)
            world.remove(name, "")
            _reconnect_later(world, station, world.router.unique_name(OWNER), back)
            if late is not None:
                world.later(late, world.when_up, functools.partial(_ask_again, world, asked))


def _open_requests(world: CoresWorld, name: str) -> list[Request]:
    """Return the requests of a party that no service has answered."""
    peers = world.router.peers.values()
    return [each for peer in peers for each in peer.inflight.get(name, {}).values()]


def _ask_again(world: CoresWorld, requests: list[Request]) -> None:
    """Let an old connection of the owner, which has another name by now, send its requests again.

    It reads no answer, and is gone a second later.
    """
    name = _new_name(world, LATE_OWNER)
    late = world.add(name, Asker(requests))
    world.linger(name, LATE_OWNER_S)
    world.start(late)
    world.later(LATE_OWNER_S, world.remove, name, "")


def prompt_owner(world: CoresWorld, place: int) -> None:
    """Let the owner make the request at this place of the plan now, if it is connected."""
    for name, station in world.stations.items():
        if name.startswith(OWNER):
            station.set_timer(place, world.passed)


def follow_journal(world: CoresWorld, seconds: float, room: int) -> None:
    """Connect a client that follows the journal, reads nothing, and goes after `seconds`.

    The broker drops it before that if more than `room` messages wait for it.
    """
    asker = Asker([Request(topics.JOB_JOURNAL, {}, flags=STREAMING)])

    def come() -> None:
        name = _new_name(world, "reader")
        reader = world.add(name, asker)
        _bound_queue(world, reader, room)
        world.linger(name, seconds)
        world.start(reader)
        world.later(seconds, world.remove, name, "")

    world.when_up(come)


def _bound_queue(world: CoresWorld, station: Station, room: int) -> None:
    """Let the queue of a client that reads nothing be full but for `room` messages.

    When it is full, the client is dropped as the broker drops one: the log names it.
    """
    deliver = station.peer.deliver
    reason = f"{QUEUE_MESSAGES_MAX} messages {UNREAD}"
    name = station.name
    is_dropped = False

    def deliver_or_drop(ref: int, message: Message) -> None:
        nonlocal is_dropped
        if not is_dropped and station.nwaiting < room:
            deliver(ref, message)
            return
        world.trace.dropped(name, message, ref, reason)
        if not is_dropped:
            is_dropped = True
            world.write_log(name, Level.ERR, f"dropped: {reason}")
            world.at_once(lambda: world.remove(name, ""))

    station.peer.deliver = deliver_or_drop


def flood(world: CoresWorld, count: int, seconds: float) -> None:
    """Let a guest submit `count` jobs at once, and go `seconds` later."""
    attributes = {"system.exec.test.run_duration": 0.1}
    jobspec = Jobspec.from_command(["true"], ntasks=1, attributes=attributes).to_json()
    requests = [Request(topics.INGEST_SUBMIT, {"jobspec": jobspec})] * count

    def come() -> None:
        name = _new_name(world, "guest")
        world.start(world.add(name, Asker(requests), GUEST))
        world.later(seconds, world.remove, name, "")

    world.when_up(come)


def ask_once(world: CoresWorld, topic: str, payload: dict[str, Any]) -> None:
    """Connect a client that sends one request and ignores the answer."""
    asker = Asker([Request(topic, payload)])
    world.when_up(lambda: world.start(world.add(_new_name(world, "client"), asker)))


def ask_for_nodes(world: CoresWorld, topic: str, ranks: Iterable[int]) -> None:
    """Let an operator send a request about nodes, again and again until it is answered."""
    targets = Idset.of(rank for rank in ranks if rank in world.inventory.ranks)
    operator = RetryingClient(topic, {"targets": str(targets)})
    world.when_up(lambda: world.start(world.add(_new_name(world, "operator"), operator)))


# --- the instance


def kill_instance(world: CoresWorld, back: float | None) -> None:
    """Kill the instance, and start it again from its store after `back` seconds.

    If `back` is None, nobody starts it again. Nothing happens if it is down.
    """
    if not world.is_up:
        return
    for station in world.end_life():
        if isinstance(station.core, Client) and station.core.comes_back:
            _reconnect_later(world, station, station.name, 0.0)
    if back is not None:
        world.later(back, world.begin_life)


def end_instance(world: CoresWorld, back: float) -> None:
    """End the instance in order, and start it again from its store after `back` seconds.

    Nothing happens if it is down.
    """
    if not world.is_up:
        return
    world.end_in_order(lambda: kill_instance(world, back))


def _reconnect_later(world: CoresWorld, station: Station, name: str, back: float) -> None:
    assert isinstance(station.core, Client)
    station.core.connection_lost()
    world.later(back, world.when_up, lambda: _reconnect(world, station, name))


def _reconnect(world: CoresWorld, station: Station, name: str) -> None:
    again = world.add(name, station.core)
    again.adopt_timers(station)
    if isinstance(station.core, Client):
        world.perform(again, station.core.reconnected(world.now))


def _new_name(world: CoresWorld, what: str) -> str:
    """Return a name that no party has, nor one that comes back from an earlier life."""
    return world.router.unique_name(f"{what}-{world.life}" if world.life else what)
