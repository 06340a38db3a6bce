"""The owner's subscriptions, and the property that finds an event that does not arrive."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from flux_trio.broker import Peer
from flux_trio.broker.subscriptions import Subscriptions
from flux_trio.faults import Do, JobPlan, LoseClient, Plan, When, run_plan
from flux_trio.faults.asking import draw_subscription
from flux_trio.faults.consistency import OURS
from flux_trio.faults.heard import Subscribers, _is_for
from flux_trio.faults.plan import Depth, plan_from_toml, plan_to_toml
from flux_trio.faults.running import play
from flux_trio.faults.world import EPOCH
from flux_trio.formats.glob import Glob
from flux_trio.messages import Event, topics
from flux_trio.messages.types import PRIVATE
from flux_trio.trace import Kind, Record

CANCELED = Plan(
    1,
    jobs=(JobPlan(run=90.0),) * 3,
    actions=(
        Do(2.0, "cancel", job=0),
        Do(5.0, "subscribe"),
        Do(8.0, "cancel", job=1),
        Do(20.0, "cancel", job=2),
    ),
)


def heard(plan: Plan) -> list[tuple[str, float]]:
    """Who has got an event of an exception, and when."""
    trace: list[Record] = []
    play(plan, [trace.append])
    return [
        (each.party, each.t - EPOCH)
        for each in trace
        if each.kind == Kind.RECV
        and isinstance(each.message, Event)
        and each.message.topic == topics.JOB_EXCEPTION_EVENT
        and each.party.startswith("owner")
    ]


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_owner_who_subscribes_gets_the_events_from_then_on(depth: Depth) -> None:
    plan = plan_from_toml(plan_to_toml(replace(CANCELED, depth=depth)))
    assert heard(plan) == [("owner", 8.0), ("owner", 20.0)]
    assert run_plan(plan, properties=OURS).problems == ()


def test_owner_subscribes_again_after_a_lost_connection() -> None:
    lost = LoseClient(When("job-manager.raise", nth=2), back=0.5)
    assert heard(replace(CANCELED, faults=(lost,)))[-1] == ("owner-1", 20.0)


@pytest.mark.parametrize("depth", ["cores", "stack"])
def test_event_that_a_late_subscriber_does_not_get_is_found(
    monkeypatch: pytest.MonkeyPatch, depth: Depth
) -> None:
    """The router keeps the subscribers of a topic that was published already."""
    monkeypatch.setattr(
        Subscriptions, "add", lambda self, pattern: self.globs.append(Glob(pattern))
    )
    plan = replace(CANCELED, depth=depth)
    (problem,) = run_plan(plan, properties=[Subscribers]).problems
    assert problem.startswith("heard: owner has not got job-exception of record ")


def test_private_event_is_owed_to_the_owner_only() -> None:
    event = Event("job-exception", {}, flags=int(PRIVATE))
    for rolemask, is_owed in ((1, True), (2, False)):
        peer = Peer("one", 1, rolemask, lambda *_: None, lambda: 0)
        peer.subscriptions.add("job-*")
        assert _is_for(event, peer) is is_owed
        assert _is_for(Event("job-exception", {}), peer)
        assert not _is_for(Event("resource-offline", {}), peer)


def test_subscription_is_drawn_in_a_fifth_of_the_worlds() -> None:
    asked = [each for seed in range(600) for each in draw_subscription(Random(seed), 30.0)]
    assert 80 < len(asked) < 160
    assert {each.what for each in asked} == {"subscribe"}
    assert any(each.when is None for each in asked)
