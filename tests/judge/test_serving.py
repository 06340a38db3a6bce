"""Whether an inventory can serve a job: nodes, slots, cores, gpus and constraints."""

from __future__ import annotations

from typing import Any, Final

import pytest

from flux_trio.formats import Idset
from flux_trio.judge.checks.constraints import Targets
from flux_trio.judge.checks.satisfying import can_serve, needs_of

HAS: Final = [(0, 4, 0), (1, 4, 2), (2, 2, 2)]
"""Target, cores and gpus."""
TARGETS: Final = Targets(
    Idset.parse("0-2"), {0: "a0", 1: "a1", 2: "b2"}, {"big": Idset.parse("0-1")}
)


def jobspec(*, nodes: Any = None, constraints: Any = None, **slot: Any) -> dict[str, Any]:
    """A job of `slots` of so many cores and gpus, on each of `nodes`."""
    parts = [{"type": kind, "count": slot[kind]} for kind in ("core", "gpu") if kind in slot]
    graph = [{"type": "slot", "count": slot["slots"], "label": "task", "with": parts}]
    if nodes is not None:
        graph = [{"type": "node", "count": nodes, "with": graph}]
    system = {} if constraints is None else {"constraints": constraints}
    return {"resources": graph, "attributes": {"system": system}}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (jobspec(slots=10, core=1), True),
        (jobspec(slots=11, core=1), False),
        (jobspec(slots=2, core=3), True),
        (jobspec(slots=3, core=3), False),  # ten cores are there, three on one node twice
        (jobspec(nodes=3, slots=2, core=1), True),
        (jobspec(nodes=3, slots=3, core=1), False),
        (jobspec(nodes=2, slots=1, core=4), True),
        (jobspec(nodes=4, slots=1, core=1), False),
        (jobspec(nodes={"min": 2, "max": 8}, slots=1, core=4), True),
        (jobspec(slots=4, core=1, gpu=1), True),
        (jobspec(slots=5, core=1, gpu=1), False),
        (jobspec(slots=8, core=1, constraints={"properties": ["big"]}), True),
        (jobspec(slots=9, core=1, constraints={"properties": ["big"]}), False),
        (jobspec(slots=1, core=1, constraints={"properties": ["none"]}), False),
        (jobspec(slots=2, core=1, constraints={"hostlist": ["b2"]}), True),
        (jobspec(slots=3, core=1, constraints={"hostlist": ["b2"]}), False),
        (jobspec(slots=1, core=1, constraints={"colour": ["red"]}), None),
    ],
)
def test_what_an_inventory_can_serve(wanted: dict[str, Any], expected: bool | None) -> None:
    needs = needs_of(wanted)
    assert needs is not None
    assert can_serve(needs, TARGETS, HAS) is expected


@pytest.mark.parametrize(
    "resources",
    [
        [],
        [{"type": "slot", "count": 1, "with": [{"type": "memory", "count": 1}]}],
        [{"type": "slot", "count": "many", "with": [{"type": "core", "count": 1}]}],
        [{"type": "rack", "count": 1, "with": [{"type": "slot", "count": 1}]}],
    ],
)
def test_of_other_shapes_nothing_is_said(resources: list[Any]) -> None:
    assert needs_of({"resources": resources, "attributes": {"system": {}}}) is None
