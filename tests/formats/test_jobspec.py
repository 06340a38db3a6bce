"""Jobspecs (RFC 25): resources and tasks."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import FormatError, Jobspec, ResourceRequest
from flux_trio.formats.jobspec_resources import _V1, KEPT_CHARS_MAX, KEPT_MAX
from tests.support.jobspecs import DATA, complaint, core, gpu, jobspec, node, rfc25, slot, task
from tests.support.reading import value_or_error

RECORDED = json.loads((DATA / "recorded.json").read_text())


# The examples


@pytest.mark.parametrize(
    ("name", "request_", "ntasks"),
    [
        ("example1", ResourceRequest(4, 4, 1, 2, 0, exclusive=False), 4),
        ("use-case-1.1", ResourceRequest(4, 4, 1, 1, 0, exclusive=False), 4),
        ("use-case-2.1", ResourceRequest(4, 4, 1, 1, 0, exclusive=False), 5),
        ("use-case-2.2", ResourceRequest(None, 10, None, 2, 0, exclusive=False), 10),
        ("use-case-2.3", ResourceRequest(None, 10, None, 2, 1, exclusive=False), 10),
        ("use-case-2.4", ResourceRequest(4, 16, 4, 1, 1, exclusive=False), 16),
    ],
)
def test_the_examples_of_rfc_25(name: str, request_: ResourceRequest, ntasks: int) -> None:
    """25.attributes.4, 25.resources.6: each printed example is valid and asks for what it says."""
    assert value_or_error(lambda: Jobspec.parse(rfc25(name)).request) == request_
    parsed = Jobspec.parse(rfc25(name))
    assert parsed.ntasks == ntasks
    assert (parsed.duration, parsed.cwd) == (3600.0, "/home/flux")
    assert parsed.environment == {"HOME": "/home/flux"}
    assert Jobspec.parse_general(rfc25(name)).request == request_


@pytest.mark.parametrize("recorded", RECORDED, ids=range(len(RECORDED)))
def test_from_command_makes_the_jobspecs_of_flux_submit(recorded: dict[str, Any]) -> None:
    """25.attributes.5: recorded jobspecs are valid, and made again from what they ask for."""
    parsed = Jobspec.parse(recorded)
    assert parsed.to_json() is recorded
    others = {key: value for key, value in parsed.system.items() if key not in ("duration", "cwd")}
    made = Jobspec.from_command(
        parsed.tasks[0].command,
        ntasks=parsed.ntasks,
        nnodes=parsed.nnodes,
        cores_per_task=parsed.request.cores_per_slot,
        gpus_per_task=parsed.request.gpus_per_slot,
        exclusive=parsed.request.exclusive,
        duration=parsed.duration,
        cwd=parsed.cwd,
        attributes={f"system.{key}": value for key, value in others.items()},
    )
    assert made.to_json() == recorded


# The document


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([jobspec()], "expected an object, got [{"),
        ("{}", 'expected an object, got "{}"'),
        (b"{", "expected a JSON object, got bytes that are not JSON"),
    ],
)
def test_a_jobspec_is_one_object(value: object, text: str) -> None:
    """25.top.1: one document, one program."""
    assert complaint(value).startswith(text)
    assert Jobspec.parse(json.dumps(jobspec()).encode()) == Jobspec.parse(jobspec())


@pytest.mark.parametrize("key", ["resources", "tasks", "attributes", "version"])
def test_the_four_keys_are_required(key: str) -> None:
    """25.top.2: resources, tasks, attributes, version."""
    broken = jobspec()
    del broken[key]
    assert complaint(broken).startswith(f"{key}: expected a")
    assert complaint(broken).endswith("got nothing")


@pytest.mark.parametrize("version", [2, 0, "1", 1.0, True, None])
def test_the_version_is_1(version: object) -> None:
    """25.top.2: no other version is taken for version 1."""
    assert complaint(jobspec(version=version)).startswith("version: expected ")


# Resources


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        ([], "resources: expected at least one resource, got []"),
        ([slot(1, core())] * 2, "resources: expected exactly node or slot, got slot,slot"),
        ([core()], "resources: expected exactly node or slot, got core"),
        (["slot"], 'resources[0]: expected an object, got "slot"'),
        ({}, "resources: expected an array, got {}"),
    ],
)
def test_resources_is_one_node_or_slot(resources: object, text: str) -> None:
    """25.resources.1: a list of exactly one element."""
    assert complaint(jobspec(resources=resources)) == text


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        (node(1, core()), "resources[0].with: expected exactly slot, got core"),
        (
            slot(1, node(1, core())),
            "resources[0].with: expected exactly core or core,gpu, got node",
        ),
        (
            node(1, slot(1, core()), slot(1, core(), label="t")),
            "resources[0].with: expected exactly slot, got slot,slot",
        ),
        (slot(1, gpu()), "resources[0].with: expected exactly core or core,gpu, got gpu"),
        (
            slot(1, core(), core()),
            "resources[0].with: expected exactly core or core,gpu, got core,core",
        ),
        (
            node(1, slot(1, core(), {"type": "socket", "count": 1})),
            "resources[0].with[0].with: expected exactly core or core,gpu, got core,socket",
        ),
        (node(1), "resources[0].with: expected an array, got nothing"),
        (slot(1, core(1, **{"with": [gpu()]})), "resources[0].with[0]: expected only the keys "),
        (slot(1, {"count": 1}), "resources[0].with[0].type: expected a string, got nothing"),
    ],
)
def test_other_shapes_of_the_graph_are_refused(resource: object, text: str) -> None:
    """25.resources.3, 25.resources.5, 25.resources.6: four types, four shapes, always a core."""
    assert complaint(jobspec(resource)).startswith(text)


def test_core_and_gpu_may_come_in_either_order() -> None:
    """25.resources.6: slot>(core,gpu) is a graph, not a sequence."""
    request = Jobspec.parse(jobspec(slot(2, gpu(3), core(4)))).request
    assert request == ResourceRequest(None, 2, None, 4, 3, exclusive=False)


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        (slot(1, core(), id="x"), "resources[0]: expected only the keys type, count, unit, with,"),
        (
            slot(1, core(exclusive=True)),
            "resources[0].with[0]: expected only the keys type, count,",
        ),
        (slot(1, core(unit=1)), "resources[0].with[0].unit: expected a string, got 1"),
        (slot(1, core(), exclusive=1), "resources[0].exclusive: expected true or false, got 1"),
    ],
)
def test_other_keys_of_a_vertex_are_refused(resource: object, text: str) -> None:
    """25.resources.2: type, count, unit, with, label, and exclusive on nodes and slots."""
    assert complaint(jobspec(resource)).startswith(text)


def test_the_optional_keys_of_a_vertex() -> None:
    """25.resources.2: exclusive is accepted on both node and slot, and matters on the node."""
    inner = slot(1, core(1, unit="x", label="c"), exclusive=True)
    assert not Jobspec.parse(jobspec(node(1, inner, unit="y", label="n"))).request.exclusive
    assert Jobspec.parse(jobspec(node(1, inner, exclusive=True))).request.exclusive
    assert not Jobspec.parse(jobspec(node(1, inner, exclusive=False))).request.exclusive


@pytest.mark.parametrize("count", [0, -1, "2", 1.0, True, None, {"min": 1}, "1-3"])
def test_a_count_is_an_integer_of_at_least_1(count: object) -> None:
    """25.resources.4: fixed counts only."""
    text = complaint(jobspec(node(1, slot(1, core(), gpu(count)))))
    assert text.startswith("resources[0].with[0].with[1].count: expected an integer of at least 1")


@pytest.mark.parametrize("count", [1 << 31, 10**4000])
def test_counts_beyond_any_machine_are_refused(count: int) -> None:
    """Python prints no product of such counts, which an error of the scheduler would have."""
    json = Jobspec.from_command(["true"]).to_json()
    assert isinstance(json["resources"], list)
    json["resources"][0]["count"] = count
    with pytest.raises(FormatError, match="an integer of at most 2147483647"):
        Jobspec.parse(json)


@given(*[st.integers(1, 50)] * 4)
def test_totals_are_products_along_the_path(n: int, s: int, c: int, g: int) -> None:
    """25.resources.7: node x slot x core."""
    parsed = Jobspec.parse(jobspec(node(n, slot(s, core(c), gpu(g)))))
    assert (parsed.nnodes, parsed.nslots) == (n, n * s)
    assert (parsed.ncores, parsed.ngpus) == (n * s * c, n * s * g)
    request = parsed.request
    assert (request.slots_per_node, request.ncores, request.ngpus) == (s, n * s * c, n * s * g)


@pytest.mark.parametrize("inside", [{"with": []}, {"with": {}}, {"with": [1]}])
def test_with_holds_at_least_one_vertex(inside: dict[str, object]) -> None:
    """14.vertex.4: a non-empty list of vertices."""
    assert complaint(jobspec(slot(1, core()) | inside)).startswith("resources[0].with")


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        (
            {"type": "slot", "count": 1, "with": [core()]},
            "resources[0].label: expected a string, got nothing",
        ),
        (slot(1, core(), label=1), "resources[0].label: expected a string, got 1"),
        (
            node(1, slot(1, core()), label="s"),
            'resources[0].with[0].label: expected a label that no other resource has, got "s"',
        ),
    ],
)
def test_slots_have_a_label_and_labels_are_unique(resource: object, text: str) -> None:
    """14.vertex.5: a string, unique in the jobspec, mandatory on slot."""
    assert complaint(jobspec(resource)) == text


# Tasks


@pytest.mark.parametrize(
    ("tasks", "text"),
    [
        ([], "tasks: expected exactly one task, got 0"),
        ([task(), task()], "tasks: expected exactly one task, got 2"),
        ([1], "tasks[0]: expected an object, got 1"),
        ([{"command": ["a"], "count": {}}], "tasks[0].slot: expected a string, got nothing"),
        ([{"slot": "s", "count": {}}], "tasks[0].command: expected an array, got nothing"),
        ([{"command": ["a"], "slot": "s"}], "tasks[0].count: expected an object, got nothing"),
        (
            [task(distribution="x")],
            'tasks[0]: expected only the keys command, slot, count, got the key "distribution"',
        ),
    ],
)
def test_there_is_one_task(tasks: object, text: str) -> None:
    """25.tasks.1, 25.attributes.5: with the keys command, slot, count and no others."""
    assert complaint(jobspec(tasks=tasks)) == text


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ([], "command: expected a program and its arguments, got []"),
        ("app", 'command: expected an array, got "app"'),
        (["app", 1], "command[1]: expected a string, got 1"),
    ],
)
def test_a_command_is_a_list_of_strings(command: object, text: str) -> None:
    """14.vertex.7: not empty."""
    assert complaint(jobspec(tasks=[task(command=command)])) == f"tasks[0].{text}"
    assert Jobspec.parse(jobspec(tasks=[task(command=["a", "b"])])).tasks[0].command == ("a", "b")


def test_a_task_names_a_slot_by_its_label() -> None:
    """14.vertex.8: a label that no slot has is refused."""
    text = complaint(jobspec(tasks=[task(slot="x")]))
    assert text == 'tasks[0].slot: expected the label of a slot in resources (s), got "x"'


@pytest.mark.parametrize(
    ("count", "text"),
    [
        ({}, ": expected exactly one of per_slot, total, got nothing"),
        ({"per_slot": 1, "total": 2}, ": expected exactly one of per_slot, total, got per_slot, "),
        ({"per_resource": {"type": "core", "count": 1}}, ": expected exactly one of per_slot, tot"),
        ({"total": 0}, ".total: expected an integer of at least 1, got 0"),
        ({"per_slot": 2}, ".per_slot: expected the integer 1, got 2"),
        ({"per_slot": True}, ".per_slot: expected an integer of at least 1, got True"),
    ],
)
def test_a_task_count_is_per_slot_or_total(count: object, text: str) -> None:
    """25.tasks.2, 25.tasks.3: exactly one of them; per_slot is 1."""
    assert complaint(jobspec(tasks=[task(count=count)])).startswith(f"tasks[0].count{text}")


def test_total_covers_the_nodes_and_may_exceed_the_slots() -> None:
    """25.tasks.4, 25.attributes.4: the lower limit holds; use case 2.1 exceeds the upper one."""
    four_nodes = node(4, slot(1, core()))
    text = complaint(jobspec(four_nodes, tasks=[task(count={"total": 3})]))
    expected = "expected an integer of at least 4, the number of nodes, got 3"
    assert text == f"tasks[0].count.total: {expected}"
    assert Jobspec.parse(jobspec(four_nodes, tasks=[task(count={"total": 5})])).ntasks == 5


# Results that are kept


def test_equal_resources_are_walked_once() -> None:
    first, second = (jobspec(slot(3, core(5))) for _ in range(2))
    assert Jobspec.parse(first).resources is Jobspec.parse(second).resources


@pytest.mark.parametrize("count", [True, 1.0, "1", b"1", None])
def test_value_that_equals_an_accepted_one_is_read_by_itself(count: Any) -> None:
    accepted = jobspec(slot(1, core(1)))
    assert Jobspec.parse(accepted).request.cores_per_slot == 1
    wrong = jobspec(slot(1, core(count)))
    assert "with[0].count" in complaint(wrong)
    assert Jobspec.parse(accepted).request.cores_per_slot == 1


def test_number_and_length_of_kept_resources_are_bounded() -> None:
    for count in range(1, 2 * KEPT_MAX):
        Jobspec.parse(jobspec(slot(count, core(1))))
    assert 0 < len(_V1.kept) <= KEPT_MAX
    label = "x" * KEPT_CHARS_MAX
    Jobspec.parse(jobspec(slot(1, core(1), label=label), tasks=[task(slot=label)]))
    assert not any(label in text for text in _V1.kept)
