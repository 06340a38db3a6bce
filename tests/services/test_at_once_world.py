"""The loop in which cores take their turns in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flux_trio.broker.router import BATCH_MAX
from flux_trio.cores.turns import ClearTimer, Exit, Log, SetTimer, TimerFired
from flux_trio.messages import ROLE_LOCAL, ROLE_OWNER, ROLE_USER, Request, respond
from flux_trio.services.at_once import InLine, ModuleEnded, Party, World
from flux_trio.trace import Kind, Record

T0 = 1000.0
OWNER = 1000

Answer = Callable[[Any], list[Any]]


def new_world() -> World[Party]:
    return World(T0, OWNER, InLine(), Party)


class ScriptedCore:
    """A core that keeps what it takes, and answers each input with actions."""

    def __init__(self, begin: list[Any], answer: Answer = lambda _: []) -> None:
        self._begin = begin
        self._answer = answer
        self.turns: list[tuple[float, list[Any]]] = []

    def start(self, now: float) -> list[Any]:
        return self._begin

    def turn(self, now: float, inputs: list[Any]) -> list[Any]:
        self.turns.append((now, [getattr(each, "key", None) or each.topic for each in inputs]))
        return [action for each in inputs for action in self._answer(each)]


def test_a_turn_takes_all_that_waits_and_the_answers_come_back() -> None:
    world = new_world()

    def answered(request: Request) -> list[Any]:
        return [respond(request, {})]

    service = ScriptedCore([], answered)
    world.add_module("service", service, ["kvs"], [])
    client = ScriptedCore([Request("kvs.a", {}, 1), Request("kvs.b", {}, 2)])
    world.start(world.add("client", client))
    world.run()
    assert service.turns == [(T0, ["kvs.a", "kvs.b"])]
    assert client.turns == [(T0, ["kvs.a", "kvs.b"])]


def test_a_turn_takes_no_more_than_a_batch_and_others_have_theirs_before_the_next() -> None:
    world = new_world()
    service = ScriptedCore([], lambda _: [])
    world.add_module("service", service, ["kvs"], [])
    order: list[int] = []
    other = ScriptedCore([], lambda _: order.append(len(service.turns)) or [])
    world.add_module("other", other, ["resource"], [])
    flood = [Request("kvs.a", {})] * (2 * BATCH_MAX + 1)
    world.start(world.add("client", ScriptedCore([*flood, Request("resource.a", {})])))
    world.run()
    assert [len(taken) for _, taken in service.turns] == [BATCH_MAX, BATCH_MAX, 1]
    assert order == [1]


def test_timers_fire_in_order_and_those_of_a_moment_before_what_follows_from_them() -> None:
    world = new_world()
    order: list[str] = []

    def noting(name: str, then: list[Any]) -> Answer:
        def answer(each: Any) -> list[Any]:
            order.append(f"{name} {getattr(each, 'key', None) or each.topic}")
            return then if isinstance(each, TimerFired) else []

        return answer

    asks = ScriptedCore([SetTimer("t", T0 + 5)], noting("asks", [Request("kvs.a", {})]))
    world.start(world.add("asks", asks))
    world.add_module(
        "service",
        ScriptedCore(
            [SetTimer("t", T0 + 5), SetTimer("u", T0 + 5), SetTimer("s", T0 + 4)], noting("s", [])
        ),
        ["kvs"],
        [],
    )
    world.run()
    assert order == ["s s", "asks t", "s kvs.a", "s t", "s u"]
    assert world.passed == T0 + 5


def test_a_timer_that_is_cleared_or_set_again_by_a_message_of_its_moment_does_not_fire() -> None:
    world = new_world()

    def answer(each: Any) -> list[Any]:
        return [] if isinstance(each, TimerFired) else [ClearTimer("a"), SetTimer("b", T0 + 9)]

    asks = ScriptedCore([SetTimer("t", T0 + 5)], lambda _: [Request("kvs.x", {})])
    world.start(world.add("asks", asks))
    service = ScriptedCore([SetTimer("a", T0 + 5), SetTimer("b", T0 + 5)], answer)
    world.add_module("service", service, ["kvs"], [])
    world.run()
    assert service.turns == [(T0 + 5, ["kvs.x"]), (T0 + 9, ["b"])]


def test_a_timer_in_the_past_fires_now() -> None:
    world = new_world()
    core = ScriptedCore([SetTimer("late", T0 - 3)])
    world.start(world.add("late", core))
    world.run()
    assert core.turns == [(T0, ["late"])]


def test_it_stops_after_the_turn_in_which_it_is_told_to() -> None:
    world = new_world()

    def stop(_: Any) -> list[Any]:
        world.stop()
        return [SetTimer("next", T0 + 1)]

    core = ScriptedCore([SetTimer("first", T0)], stop)
    world.start(world.add("stops", core))
    world.run()
    assert core.turns == [(T0, ["first"])]


def test_only_the_owner_has_the_owners_rights() -> None:
    world = new_world()
    rights = [
        world.add(name, ScriptedCore([]), userid).peer.rolemask
        for name, userid in (("a", None), ("b", 7))
    ]
    assert rights == [ROLE_LOCAL | ROLE_OWNER, ROLE_LOCAL | ROLE_USER]


def test_a_module_that_cannot_go_on_ends_the_run_and_its_log_is_kept() -> None:
    world = new_world()
    with pytest.raises(ModuleEnded, match="service: no disk"):
        world.add_module(
            "service", ScriptedCore([Log(3, "it is full"), Exit("no disk")]), ["kvs"], []
        )
    assert [entry.text for entry in world.log] == ["it is full"]


def test_at_the_end_modules_are_removed_in_reverse_and_their_callers_are_told() -> None:
    world = new_world()
    records: list[Record] = []
    world.trace.add_sink(records.append)
    world.add_module("first", ScriptedCore([]), ["kvs"], [])
    caller = ScriptedCore([Request("kvs.a", {}, 1)])
    world.start(world.add("caller", caller))
    world.add_module("second", ScriptedCore([]), ["resource"], [])
    world.run()
    world.end()
    assert caller.turns == [(T0, ["kvs.a"])]  # ENOSYS
    said = [each.data["module"] for each in records if each.kind == Kind.MODULE and each.data]
    assert said == ["first", "second", "second", "first"]
