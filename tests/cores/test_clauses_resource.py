"""RFC 28: what a scheduler can count on, whatever happens to targets."""

from __future__ import annotations

from typing import Any

import pytest

from flux_trio.cores.resource import ResourceCore
from flux_trio.formats import Idset, ResourceSet
from flux_trio.messages import Errno, Request, Response, topics
from tests.support.asking import asked
from tests.support.resource_script import INVENTORY, down, up


class Script:
    """A resource core that has acquired for one scheduler; its commits are answered at once."""

    def __init__(self) -> None:
        self.core = ResourceCore(INVENTORY, Idset())
        (lookup,) = self.core.start(1.0)
        self.put(Response(lookup.topic, None, Errno.ENOENT, lookup.matchtag))
        acquire = asked(topics.RESOURCE_ACQUIRE, {"group": "default"}, tag=1, streaming=True)
        self.acquired = self.put(acquire)

    @property
    def grown(self) -> Any:
        """The first response."""
        assert [type(told) for told in self.acquired] == [dict], self.acquired
        return self.acquired[0]

    def put(self, *inputs: Any) -> list[Any]:
        """What the scheduler is told."""
        actions = self.core.turn(1.0, list(inputs))
        stored = [Response(a.topic, {}, 0, a.matchtag) for a in actions if isinstance(a, Request)]
        told = [
            action.payload
            for action in actions
            if isinstance(action, Response) and action.topic == topics.RESOURCE_ACQUIRE
        ]
        return told + (self.put(*stored) if stored else [])

    def ask(self, method: str, **payload: Any) -> list[Any]:
        return self.put(asked(f"resource.{method}", payload, tag=2))


@pytest.fixture
def script() -> Script:
    return Script()


# What happens to targets, and what the scheduler is told.
CHANGES: dict[str, tuple[Any, dict[str, str]]] = {
    "drained": (
        lambda script: script.ask("drain", targets="2-3", reason="dimm"),
        {"type": "offline", "targets": "2-3"},
    ),
    "down": (lambda script: script.put(down("1")), {"type": "offline", "targets": "1"}),
    "excluded": (
        lambda script: script.ask("exclude", targets="3"),
        {"type": "shrink", "targets": "3"},
    ),
}


def test_the_example_request_is_answered(script: Script) -> None:
    """28.acquire.3, 28.criteria.1: {"group": "default"} is all a scheduler has to know."""
    assert script.grown["type"] == "grow"
    assert ResourceSet.parse(script.grown["resources"]).ncores == INVENTORY.ncores


def test_targets_are_the_ranks_of_r_and_each_is_up_or_down(script: Script) -> None:
    """28.background.3, 28.background.5: idsets of ranks that are in the R of the grow."""
    ranks = ResourceSet.parse(script.grown["resources"]).ranks
    online, offline = (Idset.parse(script.grown[key]) for key in ("online", "offline"))
    assert online | offline == ranks
    assert not online & offline


@pytest.mark.parametrize("what", CHANGES)
def test_every_change_is_told_on_the_open_stream(script: Script, what: str) -> None:
    """28.background.7, 28.criteria.2"""
    happens, told = CHANGES[what]
    assert happens(script) == [told]


def test_targets_that_come_back_are_told_too(script: Script) -> None:
    """28.background.7"""
    script.put(down("1"))
    assert script.put(up("1")) == [{"type": "online", "targets": "1"}]
    script.ask("exclude", targets="0")
    script.ask("release", group="default", targets="0")
    (grown,) = script.ask("exclude", targets="")
    assert (grown["type"], grown["online"]) == ("grow", "0")


def test_the_inventory_is_an_r_and_availability_is_by_rank(script: Script) -> None:
    """20.overview.2"""
    script.put(down("1"))
    request = asked(topics.RESOURCE_STATUS, tag=3)
    (response,) = script.core.turn(2.0, [request])
    status = response.payload
    assert ResourceSet.parse(status["R"]).ncores == INVENTORY.ncores
    assert status["offline"] == "1"
