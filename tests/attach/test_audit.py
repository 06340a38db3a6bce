"""Who holds what: job manager, scheduler and resource module are compared, node by node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flux_trio.attach.audit import Allocations, ask_all, compare, parse_allocated
from flux_trio.attach.handle import open_flux
from flux_trio.messages import FluxError
from tests.support.flux_peer import broker

TOPICS = ("job-manager.resource-status", "sched.resource-status", "resource.sched-status")
# As flux-core writes them when nothing is allocated.
NOTHING = (
    {"version": 1, "execution": {"R_lite": [], "starttime": 0.0, "expiration": 0.0}},
    {
        "version": 1,
        "execution": {"R_lite": [], "starttime": 0.0, "expiration": 0.0, "nodelist": [""]},
    },
    None,
)


def holding(ranks: str, hosts: str, **children: str) -> dict[str, Any]:
    return {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": ranks, "children": children}],
            "starttime": 0.0,
            "expiration": 0.0,
            "nodelist": [hosts],
        },
    }


def differences(manager: Any, scheduler: Any, resource: Any) -> list[str]:
    said = {"job manager": manager, "scheduler": scheduler, "resource module": resource}
    held = {party: parse_allocated(party, value) for party, value in said.items()}
    hosts = {0: "node0", 1: "node1", 3: "n3"}
    return [str(each) for each in compare(Allocations(held, hosts))]


@pytest.mark.parametrize("nothing", NOTHING)
def test_nothing_is_nothing_however_it_is_written(nothing: Any) -> None:
    assert differences(nothing, None, nothing) == []


def test_the_same_written_otherwise_is_the_same() -> None:
    whole = holding("0-1", "node[0-1]", core="0-3")
    parts = holding("0", "node0", core="0-3")
    parts["execution"]["R_lite"].append({"rank": "1", "children": {"core": "0-3"}})
    parts["execution"]["nodelist"] = ["node0", "node1"]
    assert differences(whole, parts, whole) == []


def test_an_r_without_hosts_is_that_of_the_ranks() -> None:
    """As flux-core's schedulers write what they hold."""
    named, nameless = holding("0-1", "node[0-1]", core="0-3"), holding("0-2", "", core="0-3")
    del nameless["execution"]["nodelist"]
    assert differences(named, nameless, named) == [
        "a node (rank 2): core 0-3: held by the scheduler, and not by the job manager and resource "
        "module"
    ]


def test_a_node_that_one_of_them_holds_alone_is_named() -> None:
    both = holding("0-1", "node[0-1]", core="0-3", gpu="0")
    one = holding("0", "node0", core="0-3", gpu="0")
    assert differences(one, both, one) == [
        "node1 (rank 1): core 0-3: held by the scheduler, and not by the job manager and resource "
        "module",
        "node1 (rank 1): gpu 0: held by the scheduler, and not by the job manager and resource "
        "module",
    ]


def test_cores_of_one_node_are_told_apart_by_who_holds_them() -> None:
    less, more = holding("3", "n3", core="0-1"), holding("3", "n3", core="1-2")
    assert differences(less, more, less) == [
        "n3 (rank 3): core 0: held by the job manager and resource module, and not by the "
        "scheduler",
        "n3 (rank 3): core 2: held by the scheduler, and not by the job manager and resource "
        "module",
    ]


async def test_each_party_is_asked_and_a_scheduler_need_not_know(tmp_path: Path) -> None:
    answers = {topic: {"allocated": holding("0", "n0", core="0")} for topic in TOPICS}
    del answers["sched.resource-status"]
    answers["resource.sched-status"]["all"] = holding("0", "n0", core="0")
    async with broker(tmp_path / "local", answers) as peer, open_flux(peer.uri, "me") as flux:
        said = await ask_all(flux)
        assert set(said.held) == {"job manager", "resource module"}
        assert said.hosts == {0: "n0"}
        assert compare(said) == []


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"allocated": 1}, r"resource.sched-status: payload: Expected `object | null`, got `int`"),
        ({"allocated": {"version": 2}}, "resource.sched-status: payload: allocated"),
        ((5, "disk"), "disk"),
    ],
)
async def test_an_answer_that_is_no_r_is_named(tmp_path: Path, answer: Any, text: str) -> None:
    answers = {topic: {"allocated": None} for topic in TOPICS} | {TOPICS[2]: answer}
    async with broker(tmp_path / "local", answers) as peer, open_flux(peer.uri, "me") as flux:
        with pytest.raises(FluxError) as refused:
            await ask_all(flux)
    assert text in str(refused.value)
