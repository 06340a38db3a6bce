"""Draining what is drained, and undraining what is not: the modes of flux-resource(1)."""

from __future__ import annotations

import pytest

from flux_trio.cores.resource.administration import Administration, Drains, Mode
from flux_trio.cores.resource.downs import Downs
from flux_trio.cores.resource.targets import Hosts
from flux_trio.editions.flux import DrainedTargets
from flux_trio.formats import Event, Idset, ResourceSet
from flux_trio.messages import FluxError
from tests.support.asking import asked

FOUR = ResourceSet.build([(rank, 1, 0) for rank in range(4)], lambda rank: f"node{rank}")


@pytest.fixture
def drains() -> Drains:
    """Rank 1 is drained since 10 s, for a reason."""
    drains = Drains(Hosts(FOUR))
    drain(drains, 10.0, "1", "old")
    return drains


def drain(
    drains: Drains, now: float, targets: str, reason: str | None, mode: Mode | None = None
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
    assert event.context == {"idset": "2", "nodelist": "node2", "overwrite": 0, "reason": "new"}
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
def test_an_excluded_target_is_refused_in_every_mode(drains: Drains, mode: Mode) -> None:
    with pytest.raises(FluxError, match="rank 2 excluded"):
        drains.drain(1.0, Idset.parse("2"), None, Idset.parse("2"), mode)


@pytest.mark.parametrize("mode", ["update", "overwrite", "force-overwrite"])
def test_what_is_not_drained_may_be_undrained_in_every_mode(drains: Drains, mode: Mode) -> None:
    event = drains.undrain(20.0, Idset.parse("0-1"), "fixed", mode)
    assert event is not None
    number = {"update": 0, "overwrite": 1, "force-overwrite": 2}[mode]
    told = {"idset": "1", "nodelist": "node1", "overwrite": number, "reason": "fixed"}
    assert event.context == told
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


def test_an_older_event_without_hosts_means_the_ranks_that_are_there(drains: Drains) -> None:
    drains.apply(Event(30.0, "drain", {"idset": "3,42", "reason": "old", "overwrite": 0}))
    assert str(drains.targets) == "1,3"


def test_brokers_of_flux_core_that_went_offline_are_no_targets_that_are_down() -> None:
    downs = Downs(Hosts(FOUR))
    downs.apply(Event(1.0, "offline", {"idset": "1-3"}))
    assert not downs.targets


def test_an_unknown_mode_is_refused_by_name() -> None:
    administration = Administration(FOUR)
    payload = {"targets": "0", "mode": "foo"}
    with pytest.raises(FluxError, match="invalid undrain mode 'foo': expected one of update"):
        administration.event_for(1.0, asked("resource.undrain", payload), Idset())
