import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_trio.formats import (
    FormatError,
    Jobspec,
    ResourceRequest,
    apply_update,
    parse_constraint,
)

DATA = Path(__file__).parents[1] / "data/jobspecs"
RECORDED = json.loads((DATA / "recorded.json").read_text())


def rfc25(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DATA / f"rfc25-{name}.json").read_text())
    return loaded


def core(count: object = 1, **more: object) -> dict[str, object]:
    return {"type": "core", "count": count, **more}


def gpu(count: object = 1, **more: object) -> dict[str, object]:
    return {"type": "gpu", "count": count, **more}


def slot(count: object, *inside: object, label: object = "s", **more: object) -> dict[str, object]:
    return {"type": "slot", "count": count, "label": label, "with": list(inside), **more}


def node(count: object, *inside: object, **more: object) -> dict[str, object]:
    held = {"with": list(inside)} if inside else {}
    return {"type": "node", "count": count, **held, **more}


def jobspec(*resources: object, version: object = 1, **changes: object) -> dict[str, Any]:
    """A valid jobspec, except for what is given."""
    return {
        "version": version,
        "resources": list(resources) or [slot(2, core())],
        "tasks": [{"command": ["app"], "slot": "s", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0}},
        **changes,
    }


def system(**attributes: object) -> dict[str, Any]:
    named = {key.replace("_", "-"): value for key, value in attributes.items()}
    return jobspec(attributes={"system": {"duration": 0, **named}})


def task(**changes: object) -> dict[str, object]:
    return {"command": ["app"], "slot": "s", "count": {"per_slot": 1}, **changes}


def complaint(value: object) -> str:
    with pytest.raises(FormatError) as caught:
        Jobspec.parse(value)
    text = str(caught.value)
    assert text.startswith("jobspec")
    return text.removeprefix("jobspec").removeprefix(".").removeprefix(": ")


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
    parsed = Jobspec.parse(rfc25(name))
    assert parsed.request == request_
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
        (
            node(1, core()),
            "resources[0].with: expected exactly slot, got core",
        ),
        (
            slot(1, node(1, core())),
            "resources[0].with: expected exactly core or core,gpu, got node",
        ),
        (
            node(1, slot(1, core()), slot(1, core(), label="t")),
            "resources[0].with: expected exactly slot, got slot,slot",
        ),
        (
            slot(1, gpu()),
            "resources[0].with: expected exactly core or core,gpu, got gpu",
        ),
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


# Attributes


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (None, "attributes: expected an object, got None"),
        ({}, "attributes.system: expected an object, got nothing"),
        ({"user": {}}, "attributes.system: expected an object, got nothing"),
        ({"system": []}, "attributes.system: expected an object, got []"),
        ({"system": {"duration": 0}, "user": 1}, "attributes.user: expected an object, got 1"),
        (
            {"system": {"duration": 0}, "site": {}},
            'attributes: expected only the keys system, user, got the key "site"',
        ),
    ],
)
def test_attributes_are_of_the_system_and_the_user(attributes: object, text: str) -> None:
    """25.attributes.1: a dictionary of dictionaries; system is required."""
    assert complaint(jobspec(attributes=attributes)) == text


@pytest.mark.parametrize("duration", [-1, -0.5, "60s", None, True, float("nan"), float("inf")])
def test_duration_is_a_number_of_seconds(duration: object) -> None:
    """25.attributes.2: at least 0."""
    text = complaint(system(duration=duration))
    assert text.startswith("attributes.system.duration: expected a number of seconds, at least 0")


def test_duration_is_required() -> None:
    """25.attributes.2: 0 means unset, but must be written."""
    text = complaint(jobspec(attributes={"system": {}}))
    assert text.startswith("attributes.system.duration: expected a number of seconds, at least 0")
    assert Jobspec.parse(system(duration=0)).duration == 0.0
    assert Jobspec.parse(system(duration=1.5)).duration == 1.5


@pytest.mark.parametrize("value", [None, 1, "x", [1, {}], {"deep": {"er": []}}])
def test_unknown_attributes_are_kept(value: object) -> None:
    """14.attributes.1, 25.attributes.3: any name of `system`, any type of value."""
    parsed = Jobspec.parse(system(exec={"test": value}, unheard_of=value))
    assert parsed.attribute("system.exec.test") == value
    assert parsed.attribute("system.unheard-of") == value
    assert parsed.to_json()["attributes"] == parsed.json["attributes"]


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"cwd": 1}, "cwd: expected a string, got 1"),
        ({"queue": None}, "queue: expected a string, got None"),
        ({"bank": 1}, "bank: expected a string, got 1"),
        ({"environment": []}, "environment: expected an object, got []"),
        ({"environment": {"A": 1}}, "environment.A: expected a string, or null to unset, got 1"),
        ({"job": {"name": 1}}, "job.name: expected a string, got 1"),
        ({"shell": []}, "shell: expected an object, got []"),
        ({"shell": {"options": 1}}, "shell.options: expected an object, got 1"),
    ],
)
def test_known_attributes_are_checked(attributes: dict[str, object], text: str) -> None:
    """25.attributes.3: the common keys mean what RFC 14 says."""
    assert complaint(system(**attributes)) == f"attributes.system.{text}"


def test_the_common_attributes() -> None:
    """25.attributes.3, 14.attributes.4: each is optional; null unsets a variable."""
    parsed = Jobspec.parse(
        system(cwd="/x", queue="batch", environment={"A": "1", "B": None}, preemptible_after=0)
    )
    assert (parsed.cwd, parsed.queue) == ("/x", "batch")
    assert parsed.environment == {"A": "1", "B": None}
    bare = Jobspec.parse(jobspec())
    assert (bare.cwd, bare.queue, bare.environment, bare.constraints) == (None, None, {}, None)


@pytest.mark.parametrize(
    ("dependencies", "text"),
    [
        ({}, ": expected an array, got {}"),
        ("afterok:1", ': expected an array, got "afterok:1"'),
        ([], ": expected at least one dependency, or no such key, got []"),
        (["afterok:1"], '[0]: expected an object, got "afterok:1"'),
        ([{"scheme": "afterok"}], "[0].value: expected a string, got nothing"),
        ([{"scheme": "afterok", "value": 1}], "[0].value: expected a string, got 1"),
        ([{"value": "1"}], "[0].scheme: expected a string, got nothing"),
    ],
)
def test_dependencies_are_a_list_of_objects(dependencies: object, text: str) -> None:
    """14.attributes.6, 26.format.1, 26.format.4: scheme and value are strings."""
    expected = f"attributes.system.dependencies{text}"
    assert complaint(system(dependencies=dependencies)) == expected


def test_other_keys_of_a_dependency_are_its_schemes_business() -> None:
    """26.format.2, 26.format.3: no key is refused for being unknown."""
    dependencies = [{"scheme": "string", "value": "foo", "type": "out", "x": 1}]
    parsed = Jobspec.parse(system(dependencies=dependencies))
    assert parsed.attribute("system.dependencies") == dependencies


def test_constraints_are_checked_and_parsed() -> None:
    """14.attributes.7: an RFC 31 object."""
    text = complaint(system(constraints=[{"properties": ["a"]}]))
    assert text.startswith("attributes.system.constraints: expected an object")
    text = complaint(system(constraints={"properties": ["a|b"]}))
    assert text.startswith("attributes.system.constraints.properties[0]: expected a property name")
    constraint = {"and": [{"properties": ["a"]}, {"ranks": ["0-3"]}]}
    assert Jobspec.parse(system(constraints=constraint)).constraints == parse_constraint(constraint)


@pytest.mark.parametrize("value", [-1, None, "0", True])
def test_preemptible_after_is_a_number_of_seconds(value: object) -> None:
    """14.attributes.8: at least 0; without the key the job is not preemptible."""
    text = complaint(system(preemptible_after=value))
    assert text.startswith("attributes.system.preemptible-after: expected a number of seconds")


def test_an_attribute_that_is_not_there_is_none() -> None:
    parsed = Jobspec.parse(system(exec="x"))
    assert parsed.attribute("system.exec.test.run_duration") is None
    assert parsed.attribute("user.x") is None


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


# Made and changed


def test_from_command_spreads_tasks_over_nodes() -> None:
    made = Jobspec.from_command(["app"], ntasks=5, nnodes=4, cores_per_task=2, gpus_per_task=1)
    assert made.to_json() == {
        "resources": [node(4, slot(2, core(2), gpu(1), label="task"))],
        "tasks": [{"command": ["app"], "slot": "task", "count": {"total": 5}}],
        "attributes": {"system": {"duration": 0}},
        "version": 1,
    }
    assert Jobspec.from_command(["app"], nnodes=3).ntasks == 3
    assert Jobspec.from_command(["app"]).ntasks == 1


def test_from_command_sets_attributes() -> None:
    made = Jobspec.from_command(
        ["app"],
        duration=60.0,
        cwd="/x",
        environment={"A": "1"},
        queue="debug",
        attributes={"system.exec.test.run_duration": "2s", "user.tag": "t"},
    )
    assert made.json["attributes"] == {
        "system": {
            "duration": 60.0,
            "cwd": "/x",
            "environment": {"A": "1"},
            "queue": "debug",
            "exec": {"test": {"run_duration": "2s"}},
        },
        "user": {"tag": "t"},
    }


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"exclusive": True}, "exclusive needs a number of nodes"),
        ({"nnodes": 3, "ntasks": 2}, r"nnodes \(3\) must not exceed ntasks \(2\)"),
        (
            {"ntasks": 0},
            r"jobspec\.resources\[0\]\.count: expected an integer of at least 1, got 0",
        ),
        (
            {"nnodes": 0},
            r"jobspec\.resources\[0\]\.count: expected an integer of at least 1, got 0",
        ),
        ({"cores_per_task": 0}, r"jobspec\.resources\[0\]\.with\[0\]\.count: expected"),
        ({"duration": -1.0}, r"jobspec\.attributes\.system\.duration: expected"),
    ],
)
def test_from_command_refuses_what_makes_no_jobspec(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Jobspec.from_command(["app"], **options)


def test_the_environment_can_be_left_out() -> None:
    whole = system(environment={"SECRET": "x"}, cwd="/x")
    before = copy.deepcopy(whole)
    parsed = Jobspec.parse(whole)
    assert parsed.without_environment() == system(cwd="/x")
    assert parsed.to_json() == before
    assert Jobspec.parse(jobspec()).without_environment() == jobspec()


def test_an_update_replaces_or_makes_the_value_at_a_dotted_path() -> None:
    """21.events.8: the original is not changed."""
    original = jobspec()
    before = copy.deepcopy(original)
    updated = apply_update(original, "attributes.system.duration", 3600)
    assert Jobspec.parse(updated).duration == 3600.0
    updated = apply_update(updated, "attributes.system.exec.test.run_duration", "1s")
    assert Jobspec.parse(updated).attribute("system.exec.test.run_duration") == "1s"
    assert original == before


def test_an_update_below_something_else_is_refused() -> None:
    with pytest.raises(
        FormatError, match=r"^attributes\.system\.duration: expected an object, got"
    ):
        apply_update(jobspec(), "attributes.system.duration.x", 1)


def test_the_place_of_an_error_begins_where_the_caller_says() -> None:
    with pytest.raises(FormatError, match=r"^payload\.jobspec\.version: expected"):
        Jobspec.parse({}, "payload.jobspec")
