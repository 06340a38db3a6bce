"""Draining what is drained, and undraining what is not: the modes of flux-resource(1)."""

from __future__ import annotations

import pytest

from flux_trio.cores.resource.administration import Drains
from flux_trio.cores.resource.targets import Hosts
from flux_trio.editions.flux import DrainedTargets, DrainMode
from flux_trio.formats import Event, Idset, ResourceSet
from flux_trio.messages import FluxError

FOUR = ResourceSet.build([(rank, 1, 0) for rank in range(4)], lambda rank: f"node{rank}")


@pytest.fixture
def drains() -> Drains:
    """Rank 1 is drained since 10 s, for a reason."""
    drains = Drains(Hosts(FOUR))
    drain(drains, 10.0, "1", "old")
    return drains


def drain(
    drains: Drains, now: float, targets: str, reason: str | None, mode: DrainMode | None = None
) -> Event | None:
    event = drains.drain(now, Idset.parse(targets), reason, Idset(), mode)
    if event is not None:
        drains.apply(event)
    return event


def told(since: float, reason: str) -> DrainedTargets:
    return DrainedTargets(since, reason)


def test_an_update_leaves_what_is_drained(drains: Drains) -> None:
    event = drain(drains, 20.0, "1-2", "new", "update")
    assert event is not None
    assert event.context == {"idset": "2", "nodelist": "node2", "reason": "new"}
    assert drains.for_status() == {"1": told(10.0, "old"), "2": told(20.0, "new")}
    assert drain(drains, 30.0, "1-2", "newer", "update") is None


def test_an_overwrite_has_a_new_reason_and_the_old_time(drains: Drains) -> None:
    event = drain(drains, 20.0, "1-2", "new", "overwrite")
    assert event is not None
    assert (event.context or {})["overwrite"] == 1
    assert drains.for_status() == {"1": told(10.0, "new"), "2": told(20.0, "new")}


def test_a_forced_overwrite_has_a_new_time_too(drains: Drains) -> None:
    drain(drains, 20.0, "1", "new", "force-overwrite")
    assert drains.for_status() == {"1": told(20.0, "new")}


@pytest.mark.parametrize("mode", ["update", "overwrite", "force-overwrite"])
def test_an_excluded_target_is_refused_in_every_mode(drains: Drains, mode: DrainMode) -> None:
    with pytest.raises(FluxError, match="rank 2 excluded"):
        drains.drain(1.0, Idset.parse("2"), None, Idset.parse("2"), mode)


@pytest.mark.parametrize("mode", ["update", "overwrite", "force-overwrite"])
def test_what_is_not_drained_may_be_undrained_in_every_mode(
    drains: Drains, mode: DrainMode
) -> None:
    event = drains.undrain(20.0, Idset.parse("0-1"), "fixed", mode)
    assert event is not None
    assert event.context == {"idset": "1", "nodelist": "node1", "reason": "fixed"}
    drains.apply(event)
    assert drains.for_status() == {}
    assert drains.undrain(30.0, Idset.parse("0-1"), None, mode) is None


def test_modes_are_found_again(drains: Drains) -> None:
    event = drain(drains, 20.0, "1", "new", "overwrite")
    again = Drains(Hosts(FOUR))
    drain(again, 10.0, "1", "old")
    assert event is not None
    again.apply(event)
    assert again.for_status() == drains.for_status()
