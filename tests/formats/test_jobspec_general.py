"""Jobspecs in general (RFC 14), of which RFC 25's are a few."""

import pytest

from flux_trio.formats import FormatError, Jobspec, ResourceRequest
from tests.support.jobspecs import core, jobspec, node, slot, task

# RFC 14 in general: the shapes of its use cases


def memory(count: object) -> dict[str, object]:
    return {"type": "memory", "count": count, "unit": "GB"}


@pytest.mark.parametrize(
    ("resource", "request_"),
    [
        # Use case 1.1: the slots are whole nodes, which they get for themselves.
        (slot(4, node(1)), ResourceRequest(4, 4, 1, 0, 0, exclusive=True)),
        # 1.2, 1.8: a range of nodes
        (
            slot({"min": 3, "max": 30, "operator": "+", "operand": 1}, node(1)),
            ResourceRequest(3, 3, 1, 0, 0, exclusive=True),
        ),
        (slot("4,9,16,25", node(1)), ResourceRequest(4, 4, 1, 0, 0, exclusive=True)),
        # 1.3, 1.4: sockets multiply their cores
        (
            slot(
                4,
                node(1, {"type": "socket", "count": {"min": 2}, "with": [core({"min": 4})]})
                | {"exclusive": False},
            ),
            ResourceRequest(4, 4, 1, 8, 0, exclusive=False),
        ),
        # 1.6: as many slots as clusters
        (
            {
                "type": "cluster",
                "count": 2,
                "with": [slot(1, node({"min": 1}, core(30), exclusive=False))],
            },
            ResourceRequest(2, 2, 1, 30, 0, exclusive=False),
        ),
        # 2.5: memory is counted and not scheduled
        (slot(10, memory({"min": 2}), core(1)), ResourceRequest(None, 10, None, 1, 0, False)),
        # A slot of two nodes has no number of slots on each
        (slot(2, node(2, core(3))), ResourceRequest(4, 2, None, 6, 0, exclusive=True)),
        (node(2, slot(3, core(4))), ResourceRequest(2, 6, 3, 4, 0, exclusive=False)),
    ],
)
def test_rfc_14_requests_are_counted(resource: object, request_: ResourceRequest) -> None:
    """14.vertex.2, 14.vertex.3: exclusive is the default inside a slot alone."""
    parsed = Jobspec.parse_general(jobspec(resource, version=999))
    assert parsed.request == request_
    assert (parsed.nnodes, parsed.nslots) == (request_.nnodes, request_.nslots)


def test_several_kinds_of_slot_have_totals_but_no_single_request() -> None:
    """Use case 2.4 of RFC 14: a database and its readers on one node."""
    resource = node(
        1, slot(10, core(1), memory(4), label="read-db"), slot(1, core(6), memory(24), label="db")
    )
    tasks = [task(slot="read-db"), task(slot="db", attributes={}, distribution="x")]
    parsed = Jobspec.parse_general(jobspec(resource, tasks=tasks))
    assert (parsed.nnodes, parsed.nslots, parsed.ncores, parsed.ntasks) == (1, 11, 16, 11)
    with pytest.raises(ValueError, match="expected one kind of slot, got 2"):
        _ = parsed.request


@pytest.mark.parametrize(
    ("count", "ntasks"),
    [
        ({"per_slot": 5}, 20),
        ({"total": 7}, 7),
        ({"per_resource": {"type": "core", "count": 3}}, 24),
        ({"per_resource": {"type": "node", "count": 1}}, 4),
    ],
)
def test_rfc_14_tasks_are_counted(count: object, ntasks: int) -> None:
    resource = slot(4, node(1, core(2)))
    assert Jobspec.parse_general(jobspec(resource, tasks=[task(count=count)])).ntasks == ntasks


def general_complaint(resource: object, *tasks: object) -> str:
    changes: dict[str, object] = {"tasks": list(tasks)} if tasks else {}
    with pytest.raises(FormatError) as caught:
        Jobspec.parse_general(jobspec(resource, **changes))
    return str(caught.value)


@pytest.mark.parametrize(
    "count", [3, "3", "[3]", "3-9", "3+", "[3-9:2:*]", "3-9:2", "3,9", "3-4,7"]
)
def test_every_spelling_of_a_count_has_a_least_value(count: object) -> None:
    assert Jobspec.parse_general(jobspec(slot(count, core()))).nslots == 3


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, ": expected an integer of at least 1, got 0"),
        ("0-3", ': expected counts of at least 1, got "0-3"'),
        ("", ': expected counts of at least 1, got ""'),
        ("3-9:", ': expected an idset or a range such as 3-30:2:*, got "3-9:"'),
        ("[3-9", ': expected an idset or a range such as 3-30:2:*, got "[3-9"'),
        ("9-3", ".max: expected an integer of at least min, 9, got 3"),
        ("3-9:1:*", ".operand: expected an integer of at least 2 with *, got 1"),
        ("1-9:2:^", ".min: expected an integer of at least 2 with ^, got 1"),
        ({}, ".min: expected an integer of at least 1, got nothing"),
        ({"min": 2, "max": 1}, ".max: expected an integer of at least min, 2, got 1"),
        ({"min": 2, "operator": "*"}, ".operand: expected operator and operand together, got not"),
        ({"min": 2, "operand": 2}, ".operator: expected operator and operand together, got not"),
        ({"min": 2, "operand": 2, "operator": "-"}, '.operator: expected one of + * ^, got "-"'),
        ({"min": 2, "step": 1}, ": expected only the keys min, max, operator, operand, got the "),
    ],
)
def test_bad_counts_in_general(count: object, text: str) -> None:
    place = "jobspec.resources[0].with[0].count"
    assert general_complaint(slot(1, core(count))).startswith(place + text)


def test_bad_tasks_in_general() -> None:
    per_resource = {"per_resource": {"type": "gpu", "count": 1}}
    text = general_complaint(slot(1, core()), task(count=per_resource))
    place = "jobspec.tasks[0].count.per_resource.type"
    assert text == f'{place}: expected a type in the slot (core), got "gpu"'
    text = general_complaint(slot(1, core()), task(attributes=1))
    assert text == "jobspec.tasks[0].attributes: expected an object, got 1"


def test_depth_is_bounded() -> None:
    deep = slot(1, core())
    for _ in range(10_000):
        deep = {"type": "rack", "count": 1, "with": [deep]}
    assert general_complaint(deep).endswith("expected at most 32 levels of resources, got more")


def test_attributes_are_optional_in_general() -> None:
    assert Jobspec.parse_general(jobspec(attributes={})).duration == 0.0
    assert Jobspec.parse_general(jobspec(attributes={})).system == {}
