"""The owner's subscriptions, and the property that finds an event that does not arrive."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from flux_trio.broker import Peer, Router
from flux_trio.broker.router import Subscriptions
from flux_trio.formats.glob import Glob
from flux_trio.lab import JobPlan, LoseClient, OwnerRequest, Plan, When, run_plan
from flux_trio.lab.plans.asking import draw_subscription
from flux_trio.lab.plans.files import plan_from_toml, plan_to_toml
from flux_trio.lab.plans.plan import Depth
from flux_trio.lab.properties.consistency import OURS
from flux_trio.lab.properties.subscriptions import Subscribers, _is_for
from flux_trio.lab.stories.running import play
from flux_trio.lab.world.cores_world import EPOCH
from flux_trio.lab.world.station import Station
from flux_trio.messages import Event, topics
from flux_trio.messages.types import PRIVATE
from flux_trio.trace import Kind

DEPTHS = pytest.mark.parametrize("depth", ["cores", "stack"])
CANCELED = Plan(
    1,
    jobs=(JobPlan(run=90.0),) * 3,
    actions=(
        OwnerRequest(2.0, "cancel", job=0),
        OwnerRequest(5.0, "subscribe"),
        OwnerRequest(8.0, "cancel", job=1),
        OwnerRequest(20.0, "cancel", job=2),
    ),
)


def heard(plan: Plan) -> list[tuple[str, float]]:
    """Who has got an event of an exception, and when."""
    return [
        (each.party, each.t - EPOCH)
        for each in play(plan).trace
        if each.kind == Kind.RECV
        and isinstance(each.message, Event)
        and each.message.topic == topics.JOB_EXCEPTION_EVENT
        and each.party.startswith("owner")
    ]


@DEPTHS
def test_owner_who_subscribes_gets_the_events_from_then_on(depth: Depth) -> None:
    plan = plan_from_toml(plan_to_toml(replace(CANCELED, depth=depth)))
    assert heard(plan) == [("owner", 8.0), ("owner", 20.0)]
    assert run_plan(plan, properties=OURS).problems == ()


def test_owner_subscribes_again_after_a_lost_connection() -> None:
    lost = LoseClient(When("job-manager.raise", nth=2), back=0.5)
    assert heard(replace(CANCELED, faults=(lost,)))[-1] == ("owner-1", 20.0)


@DEPTHS
def test_event_that_a_late_subscriber_does_not_get_is_found(
    monkeypatch: pytest.MonkeyPatch, depth: Depth
) -> None:
    """The router keeps the subscribers of a topic that was published already."""
    monkeypatch.setattr(
        Subscriptions, "add", lambda self, pattern: self.globs.append(Glob(pattern))
    )
    plan = replace(CANCELED, depth=depth)
    (problem,) = run_plan(plan, properties=[Subscribers]).problems
    assert problem.startswith("subscribed: owner has not got job-exception of record ")


def lose(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """Let the broker lose each subscription to a pattern."""
    add = Subscriptions.add

    def keep(self: Subscriptions, pattern: str) -> None:
        if pattern != lost:
            add(self, pattern)

    monkeypatch.setattr(Subscriptions, "add", keep)


@DEPTHS
def test_subscription_that_the_broker_loses_is_found(
    monkeypatch: pytest.MonkeyPatch, depth: Depth
) -> None:
    """What counts is what the owner has asked for."""
    lose(monkeypatch, "*")
    plan = replace(CANCELED, depth=depth)
    (problem,) = run_plan(plan, properties=[Subscribers]).problems
    assert problem.startswith("subscribed: owner has not got job-exception of record ")


@DEPTHS
def test_subscription_of_a_module_that_the_broker_loses_is_found(
    monkeypatch: pytest.MonkeyPatch, depth: Depth
) -> None:
    lose(monkeypatch, topics.JOB_EXCEPTION_EVENT)
    problems = run_plan(replace(CANCELED, depth=depth), properties=[Subscribers]).problems
    text = "subscribed: job-exec has not got job-exception of record "
    assert any(each.startswith(text) for each in problems)


@DEPTHS
def test_event_that_comes_twice_is_found(monkeypatch: pytest.MonkeyPatch, depth: Depth) -> None:
    found = Router._subscribers_to
    monkeypatch.setattr(Router, "_subscribers_to", lambda *args: [*found(*args)] * 2)
    broken = run_plan(replace(CANCELED, depth=depth), properties=[Subscribers]).problems
    texts = [each for each in broken if each.startswith("subscribed: ")]
    assert len(texts) == 1
    assert texts[0].endswith(", twice")


@DEPTHS
def test_event_that_comes_to_one_who_did_not_ask_for_it_is_found(
    monkeypatch: pytest.MonkeyPatch, depth: Depth
) -> None:
    found = Router._subscribers_to

    def all_and_the_owner(router: Router, topic: str) -> list[Peer]:
        return list(dict.fromkeys((*found(router, topic), router.peers["owner"])))

    monkeypatch.setattr(Router, "_subscribers_to", all_and_the_owner)
    (problem,) = run_plan(replace(CANCELED, depth=depth), properties=[Subscribers]).problems
    assert problem.startswith("subscribed: owner gets job-exception of record ")
    assert problem.endswith(", and has not subscribed to it")


def test_private_event_is_for_the_owner_and_one_user() -> None:
    event = Event("job-exception", {}, flags=int(PRIVATE), userid=7)
    for userid, rolemask, is_for in ((1, 1, True), (7, 2, True), (8, 2, False)):
        core: Any = None
        station = Station("one", core, userid, rolemask, lambda _: "")
        assert not _is_for(event, station)
        station.subscribe("job-*")
        assert _is_for(event, station) is is_for
        assert _is_for(Event("job-exception", {}), station)
        assert not _is_for(Event("resource-offline", {}), station)


def test_subscription_is_drawn_in_a_fifth_of_the_worlds() -> None:
    asked = [each for seed in range(600) for each in draw_subscription(Random(seed), CANCELED)[1]]
    assert 80 < len(asked) < 160
    assert {each.what for each in asked} == {"subscribe"}
    assert any(each.when is None for each in asked)
